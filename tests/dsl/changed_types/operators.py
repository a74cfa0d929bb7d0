"""Topologies with each operator that has a store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import millpond as mp

from .running import HOUR, MINUTE, Types, shown


def pair(one: Any, other: Any) -> str:
    return f"{shown(one)}/{shown(other)}"


def stream(b: mp.StreamsBuilder, t: Types, topic: str = "in") -> mp.KStream[str, Any]:
    return b.stream(topic, key=mp.String, value=mp.Long).map_values(t.make)


def table(b: mp.StreamsBuilder, t: Types, topic: str, **options: Any) -> mp.KTable[str, Any]:
    return stream(b, t, topic).to_table(key=mp.String, value=t.serde, store=topic, **options)


def out(results: Any) -> None:
    if isinstance(results, mp.KTable):
        results = results.to_stream()
    results.map(lambda key, value: (getattr(key, "key", key), value if isinstance(value, str) else shown(value))).to(
        "out", key=mp.String, value=mp.String
    )


def grouped(b: mp.StreamsBuilder) -> Any:
    return b.stream("in", key=mp.String, value=mp.Long).group_by_key()


def aggregate(windows: Any, t: Types, **options: Any) -> Any:
    return windows.aggregate(
        lambda: t.make(0), lambda _, number, total: t.add(number, total), store="totals", value=t.serde, **options
    )


def sessions(b: mp.StreamsBuilder, t: Types, final: bool = False, **options: Any) -> Any:
    windows = grouped(b).windowed_by(mp.SessionWindows(MINUTE))
    if final:
        windows = windows.emit_strategy(mp.EmitStrategy.on_window_close())
    return windows.aggregate(
        lambda: t.make(0),
        lambda _, number, total: t.add(number, total),
        lambda _, one, other: t.add(one, other),
        store="totals",
        value=t.serde,
        **options,
    )


def windowed(b: mp.StreamsBuilder, windows: Any = None, final: bool = False) -> Any:
    found = grouped(b).windowed_by(windows or mp.TimeWindows(MINUTE))
    return found.emit_strategy(mp.EmitStrategy.on_window_close()) if final else found


def stream_join(kind: str) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        windows = mp.JoinWindows.of_time_difference_with_no_grace(MINUTE)
        out(
            getattr(stream(b, t, "left"), kind)(
                stream(b, t, "right"), pair, windows,
                this_value=t.serde, other_value=t.serde, store="pairs", name="pairs", key=mp.String,
            )
        )  # fmt: skip

    return build


def self_join(b: mp.StreamsBuilder, t: Types) -> None:
    left = stream(b, t)
    windows = mp.JoinWindows.of_time_difference_with_no_grace(MINUTE)
    out(left.join(left, pair, windows, this_value=t.serde, other_value=t.serde, store="pairs", key=mp.String))


def cogrouped(b: mp.StreamsBuilder, t: Types) -> None:
    groups = grouped(b).cogroup(lambda _, number, total: t.add(number, total))
    out(groups.aggregate(lambda: t.make(0), store="totals", value=t.serde))


def table_aggregate(b: mp.StreamsBuilder, t: Types, **options: Any) -> None:
    numbers = b.stream("in", key=mp.String, value=mp.Long).to_table(key=mp.String, value=mp.Long, store="numbers")
    groups = numbers.group_by(lambda key, number: (key, number), key=mp.String, value=mp.Long)
    out(
        groups.aggregate(
            lambda: t.make(0),
            lambda _, number, total: t.add(number, total),
            lambda _, number, total: t.add(-number, total),
            store="totals",
            value=t.serde,
            **options,
        )
    )


def rows_of_a_group(b: mp.StreamsBuilder, t: Types) -> None:
    """The subtractor gets the old row."""
    groups = table(b, t, "in").group_by(lambda key, row: (key, row), key=mp.String, value=t.serde)
    out(
        groups.aggregate(
            lambda: 0,
            lambda _, row, total: total + row.n,
            lambda _, row, total: total - row.n,
            store="totals",
            value=mp.Long,
        )
        .to_stream()
        .map_values(str)
    )


def suppressed(wait: Any, **options: Any) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        out(aggregate(windowed(b), t).suppress(wait, name="held"))

    return build


def foreign(kind: str, **options: Any) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        left, right = table(b, t, "left"), table(b, t, "right")
        out(getattr(left, kind)(right, pair, on=lambda row: f"r{row.n}", name="fk", **options))

    return build


def table_join(kind: str, **options: Any) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        out(getattr(table(b, t, "left", **options), kind)(table(b, t, "right", **options), pair))

    return build


def lookup_join(kind: str, grace: timedelta | None = None, **options: Any) -> Callable[[mp.StreamsBuilder, Types], Any]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        numbers = b.stream("in", key=mp.String, value=mp.Long)
        extra: Any = {} if grace is None else {"grace": grace}
        out(
            getattr(numbers, kind)(
                table(b, t, "rows", **options), lambda number, row: f"{number}/{shown(row)}", **extra
            )
        )

    return build


def buffered(b: mp.StreamsBuilder, t: Types) -> None:
    """The records of the stream are what waits."""
    rows = b.stream("rows", key=mp.String, value=mp.Long).to_table(
        key=mp.String, value=mp.Long, store="rows", history_retention=HOUR
    )
    joined = stream(b, t).repartition(key=mp.String, value=t.serde, name="again")
    out(joined.join(rows, lambda one, other: f"{one.n}/{other}", grace=MINUTE, name="late", value=mp.String))


def numbers(b: mp.StreamsBuilder) -> mp.KTable[str, int]:
    return b.stream("in", key=mp.String, value=mp.Long).to_table(key=mp.String, value=mp.Long, store="numbers")


def global_join(kind: str) -> Callable[[mp.StreamsBuilder, Types], None]:
    def build(b: mp.StreamsBuilder, t: Types) -> None:
        rows = b.global_table("rows", key=mp.String, value=t.serde, store="rows")
        incoming = b.stream("in", key=mp.String, value=mp.Long)
        out(getattr(incoming, kind)(rows, lambda number, row: f"{number}/{shown(row)}", on=lambda key, _: key))

    return build


def source_join(b: mp.StreamsBuilder, t: Types) -> None:
    rows = b.table("rows", key=mp.String, value=t.serde, store="rows")
    incoming = b.stream("in", key=mp.String, value=mp.Long)
    out(incoming.join(rows, lambda number, row: f"{number}/{shown(row)}"))
