"""The cases of cogroups."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import millpond as mp
from tests.oracle.window_results.running import MS, String, case, out, out_windowed, s


def letter(v: str | None) -> Any:
    return None if v is None else v[:1]


def shown(v: str | None) -> str:
    return "n0" if v is None else v


def plus(_k: str, v: str | None, a: str) -> str:
    return shown(v) if len(a) > 30 else f"{a}+{shown(v)}"


def less(_k: str, v: str | None, a: str) -> str:
    return shown(v) if len(a) > 30 else f"{a}-{shown(v)}"


def gone(_k: str, v: str | None, a: str) -> Any:
    return None if v is None or v.startswith("a") else f"{a}/{v}"


def merge(_k: str, x: str, y: str) -> str:
    return y if len(x) + len(y) > 30 else f"{x}&{y}"


def z() -> str:
    return "z"


def grouped(b: mp.StreamsBuilder, topic: str) -> mp.KGroupedStream[str, str]:
    return s(b, topic).group_by_key()


def rekeyed(b: mp.StreamsBuilder, topic: str, name: str | None = None) -> mp.KGroupedStream[str, str]:
    return s(b, topic).group_by(lambda _, v: letter(v), key=String, value=String, name=name)


def two(b: mp.StreamsBuilder) -> mp.CogroupedKStream[str, str]:
    return grouped(b, "left").cogroup(plus).cogroup(grouped(b, "right"), less)


def three(b: mp.StreamsBuilder) -> mp.CogroupedKStream[str, str]:
    return two(b).cogroup(grouped(b, "third"), gone)


def time(size: int, advance: int, grace: int) -> mp.TimeWindows:
    return mp.TimeWindows.of_size_and_grace(size * MS, grace * MS).advance_by(advance * MS)


def slide(size: int, grace: int) -> mp.SlidingWindows:
    return mp.SlidingWindows.of_time_difference_and_grace(size * MS, grace * MS)


def gap(gap_ms: int, grace: int) -> mp.SessionWindows:
    return mp.SessionWindows.of_inactivity_gap_and_grace(gap_ms * MS, grace * MS)


def kv(caching: bool) -> mp.Materialized[str, str]:
    return {"store": "sums", "key": String, "value": String, "caching": caching}


def win(caching: bool) -> mp.MaterializedWindows[str, str]:
    return {"store": "sums", "key": String, "value": String, "caching": caching}


@case
def cogroup_one(b: mp.StreamsBuilder, h: bool) -> None:
    out(grouped(b, "left").cogroup(plus).aggregate(z, **kv(h)).to_stream())


@case
def cogroup_two(b: mp.StreamsBuilder, h: bool) -> None:
    out(two(b).aggregate(z, **kv(h)).to_stream())


@case
def cogroup_no_store(b: mp.StreamsBuilder, _h: bool) -> None:
    out(two(b).aggregate(z).to_stream())


@case
def cogroup_three_named(b: mp.StreamsBuilder, h: bool) -> None:
    out(three(b).aggregate(z, name="all", **kv(h)).to_stream())


@case
def cogroup_rekeyed(b: mp.StreamsBuilder, _h: bool) -> None:
    out(grouped(b, "left").cogroup(plus).cogroup(rekeyed(b, "right"), less).aggregate(z).to_stream())


@case
def cogroup_rekeyed_store(b: mp.StreamsBuilder, h: bool) -> None:
    out(grouped(b, "left").cogroup(plus).cogroup(rekeyed(b, "right"), less).aggregate(z, **kv(h)).to_stream())


@case
def cogroup_rekeyed_named(b: mp.StreamsBuilder, h: bool) -> None:
    both = rekeyed(b, "left", "one").cogroup(plus).cogroup(rekeyed(b, "right", "two"), less)
    out(both.cogroup(grouped(b, "third"), gone).aggregate(z, name="all", **kv(h)).to_stream())


@case
def cogroup_used_twice(b: mp.StreamsBuilder, _h: bool) -> None:
    both = rekeyed(b, "left").cogroup(plus).cogroup(rekeyed(b, "right", "two"), less)
    out(both.aggregate(z).to_stream())
    out_windowed(both.windowed_by(time(60, 30, 10)).aggregate(lambda: "w", caching=False))


@case
def cogroup_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    groups = three(b).aggregate(z, **kv(True)).group_by(lambda k, v: (letter(k), v), key=String, value=String)
    totals = groups.reduce(lambda x, y: merge("", x, y), lambda x, y: less("", y, x), store="totals", caching=h)
    out(totals.to_stream())


@case
def cogroup_joined(b: mp.StreamsBuilder, h: bool) -> None:
    third = s(b, "third")
    long = two(b).aggregate(z, **kv(h)).filter(lambda _, v: len(v) > 4)
    out(third.left_join(long, lambda v, a: f"{v or 'null'}={a or 'null'}"))


@case
def cogroup_origin(b: mp.StreamsBuilder, h: bool) -> None:
    out(two(b).aggregate(z, **kv(h)).to_stream().process_values(Origin))


@case
def cogroup_tumbling(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(three(b).windowed_by(time(60, 60, 20)).aggregate(z, **win(h)))


@case
def cogroup_hopping_named(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(two(b).windowed_by(time(90, 40, 30)).aggregate(z, name="hops", **win(h)))


@case
def cogroup_hopping_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    hops = two(b).windowed_by(time(90, 40, 30)).aggregate(z, **win(h))
    out_windowed(hops.suppress(mp.until_window_closes()))


@case
def cogroup_sliding(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(three(b).windowed_by(slide(70, 60)).aggregate(z, **win(h)))


@case
def cogroup_sliding_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(two(b).windowed_by(slide(70, 20)).aggregate(z, persistent=False, **win(h)))


@case
def cogroup_unlimited(b: mp.StreamsBuilder, h: bool) -> None:
    start = datetime.fromtimestamp(1.5, tz=UTC)
    out_windowed(two(b).windowed_by(mp.UnlimitedWindows.of().start_on(start)).aggregate(z, **win(h)))


@case
def cogroup_session(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(three(b).windowed_by(gap(25, 40)).aggregate(z, merge, **win(h)))


@case
def cogroup_session_named(b: mp.StreamsBuilder, _h: bool) -> None:
    out_windowed(two(b).windowed_by(gap(25, 0)).aggregate(z, merge, name="visits"))


@case
def cogroup_session_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    visits = two(b).windowed_by(gap(20, 10)).aggregate(z, merge, **win(h))
    out_windowed(visits.suppress(mp.until_window_closes()))


class Origin(mp.FixedKeyProcessor[Any, Any, str]):
    """Says where the record at hand came from."""

    def process(self, record: mp.FixedKeyRecord[Any, Any]) -> None:
        at = self.context.record_metadata()
        origin = "nowhere" if at is None else f"{at.topic}{at.partition}/{at.offset}"
        self.context.forward(record.with_value(f"{record.value or 'null'} from {origin}"))
