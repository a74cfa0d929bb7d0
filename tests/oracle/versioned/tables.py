"""Versioned tables, and the operators that treat them differently (KIP-914)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.versioned.running import case

String = mp.String
Table = mp.KTable[str, str]

# What the user functions do; the same in VersionedTables.java. Null in a concatenation is "null" there.


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def digit(v: str) -> int:
    return int(v[1:2])


def small(_key: object, v: str) -> bool:
    return digit(v) < 5


def glue(left: str | None, right: str | None) -> str:
    return f"{left or 'null'}|{right or 'null'}"


def plus(a: str, b: str) -> str:
    return b if len(a) > 30 else f"{a}+{b}"


def less(a: str, b: str) -> str:
    return b if len(a) > 30 else f"{a}-{b}"


def marked(v: str) -> str:
    return f"{v}m"


def zero() -> str:
    return "z0"


def versions(store: str, history: int, segment: int) -> Any:
    return {"store": store, "history_retention": ms(history), "segment_interval": ms(segment)}


def texts(store: str, history: int, segment: int) -> Any:
    return {**versions(store, history, segment), "value": String}


def stored(store: str) -> Any:
    return {"store": store, "caching": False}


def in_(b: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return b.stream("in", key=String, value=String)


def t(b: mp.StreamsBuilder, topic: str) -> Table:
    return b.table(topic, key=String, value=String, **versions(f"{topic}-rows", 60, 20))


def plain(b: mp.StreamsBuilder, topic: str) -> Table:
    return b.table(topic, key=String, value=String, store=f"{topic}-rows", caching=False)


def out(result: mp.KTable[str, Any] | mp.KStream[str, Any]) -> None:
    stream = result.to_stream() if isinstance(result, mp.KTable) else result
    stream.map_values(lambda v: None if v is None else str(v)).to("out", key=String, value=String)


def regroup(table: Table) -> mp.KGroupedTable[str, str]:
    return table.group_by(lambda _, v: (f"k{1 + digit(v) % 3}", v), key=String, value=String)


@case
def table(b: mp.StreamsBuilder) -> None:
    out(t(b, "left"))


@case
def table_default_segments(b: mp.StreamsBuilder) -> None:
    out(b.table("left", key=String, value=String, store="left-rows", history_retention=ms(0)))


@case
def to_table(b: mp.StreamsBuilder) -> None:
    out(in_(b).to_table(**versions("rows", 50, 10)).filter(small))


@case
def filter(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").filter(small).map_values(marked))


@case
def filter_stored(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").filter_not(small, **stored("kept")))


@case
def filter_versioned(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").filter(small, **versions("kept", 25, 10)))


@case
def map_versioned(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").map_values(marked, **texts("mapped", 25, 5)).filter(small))


@case
def group_count(b: mp.StreamsBuilder) -> None:
    out(regroup(t(b, "left")).count(store="counts", history_retention=ms(100)))


@case
def group_reduce(b: mp.StreamsBuilder) -> None:
    out(regroup(t(b, "left").filter(small)).reduce(plus, less, **versions("sums", 40, 10)))


@case
def group_aggregate(b: mp.StreamsBuilder) -> None:
    def add(_k: str, v: str, a: str) -> Any:
        return None if v.startswith("c") else plus(a, v)

    def subtract(_k: str, v: str, a: str) -> Any:
        return None if v.startswith("b") else less(a, v)

    out(regroup(plain(b, "left")).aggregate(zero, add, subtract, **texts("sums", 60, 20)))


@case
def filter_serdes_group(b: mp.StreamsBuilder) -> None:
    kept = t(b, "left").filter(small, key=String, value=String)
    out(regroup(kept).reduce(plus, less, **stored("sums")))


@case
def filter_stored_group(b: mp.StreamsBuilder) -> None:
    out(regroup(t(b, "left").filter(small, **stored("kept"))).reduce(plus, less, **stored("sums")))


@case
def stream_count(b: mp.StreamsBuilder) -> None:
    out(in_(b).group_by_key().count(store="counts", history_retention=ms(50)))


@case
def stream_reduce(b: mp.StreamsBuilder) -> None:
    def reduce(a: str, v: str) -> Any:
        return None if v.startswith("b") else plus(a, v)

    out(in_(b).group_by_key().reduce(reduce, **versions("sums", 60, 20)))


@case
def stream_aggregate(b: mp.StreamsBuilder) -> None:
    def add(_k: str, v: str, a: str) -> Any:
        return None if v.startswith("a") else plus(a, v)

    sums = in_(b).group_by_key().aggregate(zero, add, **texts("sums", 30, 10))
    out(sums.filter(lambda _, v: len(v) > 8))


@case
def join_tables(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").join(t(b, "right"), glue))


@case
def left_join_tables(b: mp.StreamsBuilder) -> None:
    out(t(b, "left").left_join(plain(b, "right"), glue))


@case
def outer_join_tables(b: mp.StreamsBuilder) -> None:
    out(plain(b, "left").outer_join(t(b, "right").filter(small), glue))


@case
def join_tables_versioned(b: mp.StreamsBuilder) -> None:
    joined = t(b, "left").join(t(b, "right"), glue, **texts("joined", 40, 10))
    out(regroup(joined.map_values(lambda v: v[3:])).reduce(plus, less, **stored("sums")))


@case
def join(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left"), lambda k, v, r: k + v + r, with_key=True))


@case
def left_join(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.left_join(t(b, "left"), glue))


@case
def join_view(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left").filter(small).map_values(marked), glue))


@case
def left_join_view_stored(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.left_join(t(b, "left").filter(small, **versions("kept", 30, 10)), glue))


@case
def join_joined(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left").left_join(t(b, "right"), glue), glue))


@case
def join_own_reduce(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    sums = s.group_by_key().reduce(plus, **versions("sums", 80, 20))
    out(s.left_join(sums, lambda v, r: f"{v}/{r or 'null'}"))
