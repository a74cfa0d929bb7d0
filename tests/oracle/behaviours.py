"""The topologies of java/Behaviours.java, built with millpond, and the records both are fed with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.topologies.by_hand import Dice

RECORDS = 150
String, Long = mp.String, mp.Long
CASES: dict[str, Callable[[mp.StreamsBuilder, bool], object]] = {}


def case(write: Callable[[mp.StreamsBuilder, bool], object]) -> Callable[[mp.StreamsBuilder, bool], object]:
    """Register a case under its function's name; it is run without and with caching."""
    CASES[write.__name__] = write
    return write


def run(name: str) -> str:
    """Feed the generated records to a case and write down what comes out, as the Java side does."""
    builder = mp.StreamsBuilder()
    CASES[name.removesuffix("-cached")](builder, name.endswith("-cached"))
    topology = builder.build()
    description = str(topology.describe())
    dice = Dice(len(name) * 1000 + ord(name[0]))
    now = 1000
    lines: list[str] = []
    with mp.testing.TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        inputs = {
            topic: driver.create_input_topic(topic, key=String, value=String)
            for topic in ("in", "rows")
            if f"(topics: [{topic}])" in description
        }
        out = driver.create_output_topic("out", key=String, value=String)
        sessions = driver.create_output_topic("app-sessions-changelog", key=mp.Bytes, value=mp.Bytes)
        log = driver.create_output_topic("app-s-changelog", key=String, value=String)
        kept = {
            part: driver.create_output_topic(f"app-kept-{part}-join-store-changelog", key=mp.Bytes, value=mp.Bytes)
            for part in ("outer-other", "outer-shared", "outer-this")
            if not name.endswith("-cached") and "(stores: [kept-" in description
        }
        for _ in range(RECORDS):
            topic = "rows" if dice.roll(3) == 0 else "in"
            k, v = dice.roll(6), dice.roll(7)
            key = None if k == 0 else f"k{k}"
            value = None if v == 0 else chr(ord("a") + dice.roll(4)) + str(dice.roll(10))
            now += dice.roll(40)
            timestamp = max(0, now - dice.roll(120))
            if topic not in inputs:
                continue
            inputs[topic].pipe_input(key, value, timestamp)
            lines.append(f"{topic} {_java(key)} {_java(value)} {timestamp}")
            lines += [f"  {_java(r.key)} {_java(r.value)} {r.timestamp}" for r in out.read_records_to_list()]
            for part, changelog in kept.items():
                lines += [
                    f"  {part}: {_hex(r.key)} {_hex(r.value)} {r.timestamp}" for r in changelog.read_records_to_list()
                ]
            if name.endswith("-cached") and "(stores: [sessions])" in description:
                lines += [
                    f"  sessions: {_hex(r.key)} {_hex(r.value)} {r.timestamp}" for r in sessions.read_records_to_list()
                ]
            if name.endswith("-cached") and "(stores: [s])" in description:
                lines += [f"  s: {_java(r.key)} {_java(r.value)} {r.timestamp}" for r in log.read_records_to_list()]
    return "\n".join([*lines, ""])


def _java(text: str | None) -> str:
    return "null" if text is None else text


def _hex(data: bytes | None) -> str:
    return "null" if data is None else data.hex()


# What the user functions do; the same in Behaviours.java. Null in a concatenation is "null" there.


def letter(v: str | None) -> Any:
    return None if v is None else v[:1]


def digit(v: str) -> int:
    return int(v[1:2])


def small(v: str | None) -> bool:
    return v is not None and digit(v) < 5


def plus(a: str, b: str) -> str:
    return b if len(a) > 30 else f"{a}+{b}"


def less(a: str, b: str) -> str:
    return b if len(a) > 30 else f"{a}-{b}"


def glue(v: str, r: str | None) -> str:
    return v + _java(r)


def is_small(_key: object, v: str) -> bool:
    return small(v)


def in_(b: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return b.stream("in", key=String, value=String)


def rows(b: mp.StreamsBuilder, caching: bool) -> mp.KTable[str, str]:
    return b.table("rows", key=String, value=String, store="rows-store", caching=caching)


def passing(b: mp.StreamsBuilder) -> mp.KTable[str, str]:
    return b.table("rows", key=String, value=String)


def everywhere(b: mp.StreamsBuilder) -> mp.GlobalKTable[str, str]:
    return b.global_table("rows", key=String, value=String)


def out(s: mp.KStream[str, Any]) -> None:
    s.map_values(lambda v: None if v is None else str(v)).to("out", key=String, value=String)


def out_windowed(t: mp.KTable[mp.Windowed[str], Any]) -> None:
    out(t.to_stream().select_key(lambda k, _: f"{k.key}@{k.start_ms}-{k.end_ms}"))


def size(size_ms: int, advance_ms: int, grace_ms: int) -> mp.TimeWindows:
    ms = timedelta(milliseconds=1)
    return mp.TimeWindows(size_ms * ms, advance=advance_ms * ms, grace=grace_ms * ms)


def regroup(t: mp.KTable[str, str]) -> mp.KGroupedTable[str, str]:
    return t.group_by(lambda _, v: (letter(v), v), key=String, value=String)


def wait(ms: int, **limits: Any) -> mp.Suppressed[Any]:
    return mp.until_time_limit(timedelta(milliseconds=ms), **limits)


class Origin(mp.FixedKeyProcessor[Any, Any, str]):
    """Says where the record at hand came from."""

    def process(self, record: mp.FixedKeyRecord[Any, Any]) -> None:
        at = self.context.record_metadata()
        origin = "nowhere" if at is None else f"{at.topic}{at.partition}/{at.offset}"
        self.context.forward(record.with_value(f"{_java(record.value)} from {origin}"))


class Thrice(mp.FixedKeyProcessor[str, str, str]):
    """Forwards a record, then an earlier one, then the record again."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        self.context.forward(record)
        self.context.forward(record.with_timestamp(max(0, record.timestamp - 60)))
        self.context.forward(record)


class Writer(mp.Processor[str, str, str, str]):
    """Writes into store "s" from records, from records with another timestamp, and from a punctuator."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        super().init(context)
        self.store = context.get_state_store("s")
        context.schedule(timedelta(milliseconds=100), mp.PunctuationType.STREAM_TIME, self.punctuate)

    def punctuate(self, now: int) -> None:
        self.store.put("p", f"at {now}")
        self.context.forward(mp.Record("p", "tick", now + 3))

    def process(self, record: mp.Record[str, str]) -> None:
        key = "n" if record.key is None else record.key
        self.store.put("first", key)
        self.store.put(key, record.value)
        self.context.forward(record.with_key(key).with_timestamp(record.timestamp // 2))
        self.store.put("first", f"{key}!")


class Second(mp.Processor[str, str, str, str]):
    """Writes what a Writer forwards."""

    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("s").put(f"{record.key}2", record.value)
        self.context.forward(record)


@case
def stateless(b: mp.StreamsBuilder, h: bool) -> None:
    many = (
        in_(b)
        .filter(is_small)
        .filter_not(lambda _, v: v.endswith("3"))
        .map(lambda k, v: (letter(v), v + _java(k)))
        .flat_map_values(lambda v: [v, v + "!"])
        .flat_map(lambda k, v: [(k, v)] if v.endswith("!") else [(v, k), (k, v)])
    )
    out(many.select_key(lambda k, v: k + v))


@case
def split(b: mp.StreamsBuilder, h: bool) -> None:
    s = (
        in_(b)
        .split(name="s-")
        .branch(is_small, name="low")
        .branch(lambda _, v: v is not None and v.startswith("a"), name="a")
        .default_branch(name="rest")
    )
    low, a = s["s-low"].map_values(lambda v: "low " + v), s["s-a"].map_values(lambda v: "a " + v)
    out(low.merge(a).merge(s["s-rest"]))


@case
def count(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).group_by_key().count(store="c", caching=h).to_stream())


@case
def reduce(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).group_by_key().reduce(plus, store="r", caching=h).to_stream())


@case
def aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    def add(k: str, v: str, a: str) -> Any:
        return None if v == "a1" else plus(a, k + v)

    out(in_(b).group_by_key().aggregate(lambda: "z0", add, store="a", caching=h, value=String).to_stream())


@case
def group_by_count(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).group_by(lambda _, v: letter(v), key=String).count(store="c", caching=h).to_stream())


@case
def window_tumbling_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(in_(b).group_by_key().windowed_by(size(60, 60, 20)).count(caching=h))


@case
def window_tumbling_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    def add(_k: str, v: str | None, a: str) -> Any:
        return None if v is None else plus(a, v)

    grouped = in_(b).group_by_key().windowed_by(size(50, 50, 0))
    out_windowed(grouped.aggregate(lambda: "z0", add, value=String, caching=h))


@case
def window_hopping_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(in_(b).group_by_key().windowed_by(size(90, 40, 30)).count(caching=h))


@case
def window_hopping_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    grouped = in_(b).group_by_key().windowed_by(size(60, 25, 10))
    out_windowed(grouped.reduce(lambda x, y: plus(x, "n0" if y is None else y), caching=h))


@case
def table(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).to_stream())


@case
def table_passing_filter(b: mp.StreamsBuilder, h: bool) -> None:
    out(passing(b).filter(is_small).to_stream())


@case
def table_filter(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).filter(is_small).map_values(lambda v: v + "?").to_stream())


@case
def table_filter_not_stored(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).filter_not(is_small, store="kept", caching=h).to_stream())


@case
def table_passing_filter_stored(b: mp.StreamsBuilder, h: bool) -> None:
    kept = passing(b).filter(is_small, store="kept", caching=h)
    out(kept.map_values(lambda v: v + "?", store="mapped", value=String, caching=h).to_stream())


@case
def to_table(b: mp.StreamsBuilder, h: bool) -> None:
    out(in_(b).to_table(store="t", caching=h).filter(is_small).to_stream())


@case
def table_group_count(b: mp.StreamsBuilder, h: bool) -> None:
    out(regroup(rows(b, h)).count(store="c", caching=h).to_stream())


@case
def table_group_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    out(regroup(rows(b, h)).reduce(plus, less, store="r", caching=h).to_stream())


@case
def table_group_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    def add(_k: str, v: str, a: str) -> str:
        return plus(a, v)

    def subtract(_k: str, v: str, a: str) -> Any:
        return None if v == "b2" else less(a, v)

    grouped = regroup(rows(b, h))
    out(grouped.aggregate(lambda: "z0", add, subtract, store="a", value=String, caching=h).to_stream())


@case
def table_filter_group_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    kept = passing(b).filter(is_small).map_values(lambda v: v + "m")
    out(regroup(kept).reduce(plus, less, store="r", caching=h).to_stream())


@case
def table_stored_filter_group(b: mp.StreamsBuilder, h: bool) -> None:
    grouped = regroup(rows(b, h).filter(is_small, store="kept", caching=h))
    sums = grouped.aggregate(
        lambda: "z0", lambda _, v, a: plus(a, v), lambda _, v, a: less(a, v), store="a", value=String, caching=h
    )
    out(sums.filter(lambda _, v: len(v) > 6).to_stream())


@case
def suppress_windows(b: mp.StreamsBuilder, h: bool) -> None:
    counts = in_(b).group_by_key().windowed_by(size(60, 60, 20)).count()
    out_windowed(counts.suppress(mp.until_window_closes()))


@case
def suppress_hopping_filtered(b: mp.StreamsBuilder, h: bool) -> None:
    counts = in_(b).group_by_key().windowed_by(size(60, 30, 0)).count()
    out_windowed(counts.filter(lambda _, n: n > 1).suppress(mp.until_window_closes()))


@case
def suppress_time_limit(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).suppress(wait(70)).to_stream())


@case
def suppress_max_records(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).suppress(wait(500, max_records=3)).to_stream())


@case
def suppress_max_bytes_group(b: mp.StreamsBuilder, h: bool) -> None:
    # Not cached: what a cache sends on has no source record here, whose topic's name would count too.
    held = rows(b, caching=False).suppress(wait(500, max_bytes=150))
    out(regroup(held).reduce(plus, less, store="r", caching=h).to_stream())


@case
def join(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.join(rows(b, h), lambda k, v, r: k + v + r, with_key=True))


@case
def left_join(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.left_join(rows(b, h), glue))


@case
def join_rekeyed(b: mp.StreamsBuilder, h: bool) -> None:
    def by_digit(_k: str, v: str) -> Any:
        return None if v is None else f"k{digit(v)}"

    s = in_(b).select_key(by_digit, key=String)
    out(s.join(rows(b, h), glue))


@case
def left_join_rekeyed(b: mp.StreamsBuilder, h: bool) -> None:
    def unless_small(k: str, v: str) -> Any:
        return None if small(v) else k

    s = in_(b).select_key(unless_small, key=String)
    out(s.left_join(rows(b, h), glue))


@case
def join_view(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.join(rows(b, h).filter(is_small).map_values(lambda v: v + "m"), glue))


@case
def left_join_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.left_join(rows(b, h).suppress(wait(100)), glue))


@case
def join_own_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    sums = s.group_by_key().reduce(plus, store="r", caching=h)
    out(s.left_join(sums, lambda v, r: f"{v}/{_java(r)}"))


def _other(_k: str, v: str) -> Any:
    return None if v is None or digit(v) > 6 else f"k{digit(v)}"


@case
def global_join(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.join(everywhere(b), glue, on=_other))


@case
def global_left_join(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    out(s.left_join(everywhere(b), glue, on=_other))


@case
def siblings(b: mp.StreamsBuilder, h: bool) -> None:
    s = in_(b)
    s.to("out")
    s.map_values(lambda v: f"{_java(v)}-mapped", value=String).to("out")
    s.filter(is_small).to("out")
    s.to("out")


@case
def origin_of_table(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).to_stream().process_values(Origin))


@case
def origin_of_windows(b: mp.StreamsBuilder, h: bool) -> None:
    counts = in_(b).group_by_key().windowed_by(size(60, 25, 10)).count(caching=h)
    out(counts.to_stream().process_values(Origin).select_key(lambda k, _: f"{k.key}@{k.start_ms}"))


@case
def origin_of_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).suppress(wait(70)).to_stream().process_values(Origin))


@case
def origin_of_two_tables(b: mp.StreamsBuilder, h: bool) -> None:
    out(rows(b, h).filter(is_small, store="kept", caching=h).to_stream().process_values(Origin))


@case
def topic_by_origin(b: mp.StreamsBuilder, h: bool) -> None:
    def target(_key: str, _value: str, context: Any) -> str:
        return "out" if context.topic == "rows" and context.offset % 2 == 0 else "other"

    rows(b, h).to_stream().to(target)


@case
def windows_put_again(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(
        in_(b).process_values(Thrice, value=String).group_by_key().windowed_by(size(50, 50, 200)).count(caching=h)
    )


@case
def store_of_processors(b: mp.StreamsBuilder, h: bool) -> None:
    b.add_state_store(mp.KeyValueStoreBuilder(name="s", key=String, value=String, caching=h))
    in_(b).process(Writer, stores=["s"]).process(Second, stores=["s"]).to("out", key=String, value=String)
