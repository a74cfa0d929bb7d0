"""One application with every stateful operator, which a Java application and a millpond worker run in turns.

`java/Turns.java` has the same topology, in the same order. The results of each key come in one order, whoever runs it,
except those of `LAST_OF_KEY` and `FOREIGN`: they pass through a repartition topic, where records of several partitions
meet in any order, so only the last one of each key is determined.

A join of a stream with a table with a grace period is left out: a Java application that is restarted loses the records
that wait in such a join, without any move (7 turns of Kafka Streams 4.1.0 alone).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

import millpond as mp

__all__ = (
    "ANY_ORDER",
    "FOREIGN",
    "INPUTS",
    "LAST_OF_KEY",
    "OUTPUTS",
    "SENT_AGAIN",
    "Inputs",
    "Out",
    "add_operators",
    "topology",
)

SECOND = timedelta(seconds=1)
WINDOW = 10 * SECOND
WINDOW_MS = 10_000
GRACE = 20 * SECOND
GRACE_OF_JOINS = 2 * SECOND
RETENTION = timedelta(minutes=2)
HISTORY_MS = 120_000
FINALS_RETENTION = timedelta(minutes=20)
"""Longer than any gap of the input: Kafka Streams sends no final result of a window that has left the retention."""

INPUTS = ("left", "right", "table", "other", "versions", "global")


def pair(one: str, two: str | None) -> str:
    return f"{one}/{'-' if two is None else two}"


def either(one: str | None, two: str | None) -> str:
    return f"{'null' if one is None else one}/{'-' if two is None else two}"


def joined(one: str, two: str) -> str:
    return added("", two, one)


def added(_key: str, value: str, total: str) -> str:
    """Return a sum of texts that does not grow: its last characters."""
    return f"{total}{value}"[-12:]


def summed(_key: str, value: str, total: str) -> str:
    """Return a sum of the last digits of the values, which is the same in any order."""
    return str(int(total) + int(value[-1]))


def less(_key: str, value: str, total: str) -> str:
    return str(int(total) - int(value[-1]))


def zero() -> str:
    return "0"


class AllStores(mp.FixedKeyProcessor[str, str, str]):
    """Reads and writes a store of each kind, and forwards what it read."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        key, time, store = record.key, record.timestamp, self.context.get_state_store
        start = time - time % WINDOW_MS
        seen = []
        plain: Any = store("kv")
        old = plain.get(key)
        plain.put(key, 1 if old is None else old + 1)
        seen.append(str(old or 0))
        timed: Any = store("kv-timed")
        before = timed.get(key)
        timed.put(key, mp.ValueAndTimestamp(1 if before is None else before.value + 1, time))
        seen.append("0@0" if before is None else f"{before.value}@{before.timestamp}")
        windows: Any = store("windows")
        in_window = windows.fetch(key, start)
        windows.put(key, 1 if in_window is None else in_window + 1, start)
        seen.append(str(in_window or 0))
        duplicates: Any = store("duplicates")
        duplicates.put(key, record.value, start)
        seen.append(str(len(list(duplicates.fetch(key, start, start)))))
        sessions: Any = store("sessions")
        found = list(sessions.find_sessions(key, time - 3000, time + 3000))
        for each, _ in found:
            sessions.remove(each)
        merged = 1 + sum(count for _, count in found)
        sessions.put(mp.Windowed(key, min([time, *(each.window.start for each, _ in found)]), time), merged)
        seen.append(str(merged))
        versions: Any = store("versioned-kv")
        earlier = versions.get(key, time - 5000)
        versions.put(key, record.value, time)
        seen.append("-" if earlier is None else f"{earlier.value}@{earlier.timestamp}")
        self.context.forward(record.with_value(" ".join(seen)))


class Out:
    """Writes results to topics."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.names: list[str] = []

    def stream(self, name: str, results: mp.KStream[Any, Any], key: Any = mp.String, value: Any = mp.String) -> None:
        self.names.append(name)
        results.to(f"{self._prefix}{name}", key=key, value=value, name=f"to-{name}")

    def texts(self, name: str, results: mp.KTable[Any, Any]) -> None:
        self.stream(name, results.to_stream(name=f"changes-of-{name}"))

    def longs(self, name: str, results: mp.KTable[Any, Any]) -> None:
        self.stream(name, results.to_stream(name=f"changes-of-{name}"), value=mp.Long)

    def windowed(self, name: str, results: mp.KTable[Any, Any], value: Any = mp.Long) -> None:
        key = mp.TimeWindowedSerde(mp.String, WINDOW)
        self.stream(name, results.to_stream(name=f"changes-of-{name}"), key, value)

    def sessions(self, name: str, results: mp.KTable[Any, Any]) -> None:
        self.stream(name, results.to_stream(name=f"changes-of-{name}"), mp.SessionWindowedSerde(mp.String), mp.Long)


class Inputs(NamedTuple):
    """The streams and tables that the operators read."""

    left: mp.KStream[str, str]
    right: mp.KStream[str, str]
    table: mp.KTable[str, str]
    other: mp.KTable[str, str]
    versions: mp.KTable[str, str]


def topology(prefix: str = "", out: Out | None = None) -> mp.Topology:
    """Return the application, which writes to topics whose names begin with `prefix`."""
    builder = mp.StreamsBuilder()
    add_operators(builder, Out(prefix) if out is None else out)
    return builder.build()


def add_operators(builder: mp.StreamsBuilder, out: Out, grace_of_joins: timedelta = GRACE_OF_JOINS) -> Inputs:
    """Add the operators to a topology; return their inputs, for further operators."""
    left = builder.stream("left", key=mp.String, value=mp.String)
    right = builder.stream("right", key=mp.String, value=mp.String)
    table = builder.table("table", key=mp.String, value=mp.String, store="table", caching=False)
    other = builder.table("other", key=mp.String, value=mp.String, store="other", caching=False)

    grouped = left.group_by_key(key=mp.String, value=mp.String)
    out.longs("count", grouped.count(name="count", store="count", caching=False))
    out.texts("reduce", grouped.reduce(joined, name="reduce", store="reduce", caching=False))
    out.texts("aggregate", grouped.aggregate(str, added, name="aggregate", **_texts("aggregate")))
    out.texts("in-memory", grouped.aggregate(str, added, name="in-memory", persistent=False, **_texts("in-memory")))

    tumbling = mp.TimeWindows(WINDOW, grace=GRACE)
    counts = grouped.windowed_by(tumbling).count(name="tumbling", store="tumbling", caching=False, retention=RETENTION)
    out.windowed("tumbling", counts)
    out.windowed("suppress-final", counts.suppress(mp.until_window_closes(), name="suppress-final"))
    out.windowed("suppress-time", counts.suppress(mp.until_time_limit(5 * SECOND), name="suppress-time"))
    hopping = grouped.windowed_by(tumbling.advance_by(5 * SECOND))
    out.windowed("hopping", hopping.count(name="hopping", store="hopping", caching=False))
    sliding = mp.SlidingWindows.of_time_difference_and_grace(WINDOW, GRACE)
    out.windowed("sliding", grouped.windowed_by(sliding).count(name="sliding", store="sliding", caching=False))
    sessions = mp.SessionWindows.of_inactivity_gap_and_grace(4 * SECOND, GRACE)
    out.sessions("session", grouped.windowed_by(sessions).count(name="session", store="session", caching=False))

    windows = mp.JoinWindows.of_time_difference_and_grace(5 * SECOND, grace_of_joins)
    out.stream("stream-inner", left.join(right, pair, windows, **_joined("stream-inner")))
    out.stream("stream-left", left.left_join(right, pair, windows.before(3 * SECOND), **_joined("stream-left")))
    out.stream("stream-outer", left.outer_join(right, either, windows, **_joined("stream-outer")))
    out.stream("stream-self", left.join(left, pair, windows, **_joined("stream-self")))

    out.stream("stream-table", left.join(table, pair, name="stream-table"))
    out.stream("stream-table-left", left.left_join(table, pair, name="stream-table-left"))
    global_ = builder.global_table("global", key=mp.String, value=mp.String, store="global")
    out.stream("global", left.left_join(global_, pair, on=lambda _, value: value[:1], name="global-join"))

    out.texts("table-inner", table.join(other, pair, name="table-inner", **_texts("table-inner")))
    out.texts("table-left", table.left_join(other, pair, name="table-left", **_texts("table-left")))
    out.texts("table-outer", table.outer_join(other, either, name="table-outer", **_texts("table-outer")))
    out.texts("filter", table.filter(lambda _, value: value < "5", name="table-filter", **_texts("filter")))
    out.texts("map-values", table.map_values(lambda value: f"{value}!", name="table-map", **_texts("map-values")))
    out.texts("to-table", right.to_table(name="table-of-right", **_texts("to-table")))
    out.texts(
        "regrouped",
        table.group_by(lambda _, value: (value[:1], value), key=mp.String, value=mp.String, name="regrouped").aggregate(
            zero, summed, less, name="regrouped-sum", **_texts("regrouped")
        ),
    )
    rekeyed = left.group_by(lambda _, value: value[:1], key=mp.String, value=mp.String, name="rekeyed")
    out.texts("rekeyed", rekeyed.aggregate(zero, summed, name="rekeyed-sum", **_texts("rekeyed")))

    _state_processors(builder, left, out)

    both = grouped.cogroup(added)
    with_right = both.cogroup(
        right.group_by_key(key=mp.String, value=mp.String), lambda key, value, total: added(key, value.upper(), total)
    )
    out.texts("cogroup", with_right.aggregate(str, name="cogroup", **_texts("cogroup")))
    out.windowed(
        "cogroup-windowed",
        grouped.cogroup(added)
        .windowed_by(tumbling)
        .aggregate(str, name="cogroup-windowed", **_texts("cogroup-windowed")),
        mp.String,
    )
    closing = mp.EmitStrategy.on_window_close()
    for name, kind in (("final-tumbling", tumbling), ("final-sliding", sliding)):
        finals = grouped.windowed_by(kind).emit_strategy(closing)
        out.windowed(name, finals.count(name=name, store=name, caching=False, retention=FINALS_RETENTION))
    final_sessions = grouped.windowed_by(sessions).emit_strategy(closing)
    out.sessions(
        "final-session",
        final_sessions.count(name="final-session", store="final-session", caching=False, retention=FINALS_RETENTION),
    )

    for name, join in (("foreign-inner", table.join), ("foreign-left", table.left_join)):
        out.texts(name, join(other, pair, on=lambda value: f"k{value[-1]}", name=name, **_texts(name)))

    versioned = builder.table(
        "versions", key=mp.String, value=mp.String, store="versions", history_retention=timedelta(minutes=2)
    )
    out.stream("stream-versioned", left.join(versioned, pair, name="stream-versioned"))
    return Inputs(left, right, table, other, versioned)


def _texts(store: str) -> Any:
    return {"store": store, "key": mp.String, "value": mp.String, "caching": False}


def _joined(name: str) -> Any:
    return {
        "key": mp.String, "value": mp.String, "this_value": mp.String, "other_value": mp.String, "name": name,
        "store": name,
    }  # fmt: skip


def _state_processors(builder: mp.StreamsBuilder, left: mp.KStream[str, str], out: Out) -> None:
    numbers: Any = {"key": mp.String, "value": mp.Long}
    texts: Any = {"key": mp.String, "value": mp.String}
    windows: Any = {"retention_ms": 120_000, "window_size_ms": WINDOW_MS}
    stores: list[Any] = [
        mp.KeyValueStoreBuilder(name="kv", **numbers),
        mp.KeyValueStoreBuilder(name="kv-timed", timestamped=True, persistent=False, **numbers),
        mp.WindowStoreBuilder(name="windows", **windows, **numbers),
        mp.WindowStoreBuilder(name="duplicates", retain_duplicates=True, **windows, **texts),
        mp.SessionStoreBuilder(name="sessions", retention_ms=120_000, **numbers),
        mp.VersionedKeyValueStoreBuilder(name="versioned-kv", history_retention_ms=HISTORY_MS, **texts),
    ]
    for store in stores:
        builder.add_state_store(store)
    names = [store.name for store in stores]
    out.stream("stores", left.process_values(AllStores, stores=names, name="all-stores", value=mp.String))


def _outputs() -> tuple[str, ...]:
    out = Out("")
    topology(out=out)
    return tuple(out.names)


OUTPUTS = _outputs()
"""The names of all outputs."""

LAST_OF_KEY = frozenset({"regrouped", "rekeyed"})
"""Those of which only the last record of each key is determined."""

FOREIGN = frozenset({"foreign-inner", "foreign-left"})
"""Those that depend on which of two tables is ahead: whether a row had a partner before its last change."""

ANY_ORDER = frozenset({"stream-left", "stream-outer"})
"""Those whose results without a partner come when the wall clock allows it, before or after other results."""

SENT_AGAIN = frozenset({"final-tumbling", "final-sliding", "final-session"})
"""Those that Kafka Streams sends again after a move from millpond, whose offset metadata it cannot read."""
