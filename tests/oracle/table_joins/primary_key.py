"""Joins by the key of both tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.table_joins.running import case

String = mp.String
Table = mp.KTable[str, str]


# What the user functions do; the same in TableJoins.java. Null in a concatenation is "null" there.


def letter(v: str) -> str:
    return v[:1]


def digit(v: str) -> int:
    return int(v[1:2])


def small(_key: object, v: str) -> bool:
    return digit(v) < 5


def glue(left: str | None, right: str | None) -> str:
    return f"{left or 'null'}|{right or 'null'}"


def plus(a: str, b: str) -> str:
    return b if len(a) > 40 else f"{a}+{b}"


def less(a: str, b: str) -> str:
    return b if len(a) > 40 else f"{a}-{b}"


def marked(v: str) -> str:
    return f"{v}m"


def t(b: mp.StreamsBuilder, topic: str, caching: bool) -> Table:
    return b.table(topic, key=String, value=String, store=f"{topic}-rows", caching=caching)


def passing(b: mp.StreamsBuilder, topic: str) -> Table:
    return b.table(topic, key=String, value=String)


def out(table: Table) -> None:
    table.to_stream().to("out", key=String, value=String)


def sums(table: Table, caching: bool) -> Table:
    grouped = table.group_by(lambda _, v: (letter(v), v), key=String, value=String)
    return grouped.reduce(plus, less, store="sums", caching=caching)


def held(table: Table) -> Table:
    return table.suppress(mp.until_time_limit(timedelta(milliseconds=100)))


class Origin(mp.FixedKeyProcessor[str, str, str]):
    """Says where the record at hand came from."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        at = self.context.record_metadata()
        origin = "nowhere" if at is None else f"{at.topic}{at.partition}/{at.offset}"
        self.context.forward(record.with_value(f"{record.value or 'null'} from {origin}"))


@case
def inner(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue))


@case
def inner_passing(b: mp.StreamsBuilder, h: bool) -> None:
    out(passing(b, "left").join(passing(b, "right"), glue))


@case
def inner_named(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, name="both"))


@case
def inner_stored(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, store="joined", value=String, caching=h))


@case
def inner_named_stored(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, name="both", store="joined", value=String, caching=h))


@case
def inner_serdes_only(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, key=String, value=String))


@case
def inner_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).join(t(b, "right", h), glue), h))


@case
def inner_stored_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).join(t(b, "right", h), glue, store="joined", value=String, caching=h), h))


@case
def inner_filtered(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue).filter(small))


@case
def inner_filtered_stored(b: mp.StreamsBuilder, h: bool) -> None:
    joined = t(b, "left", h).join(t(b, "right", h), glue)
    out(joined.filter(small, store="joined-kept", value=String, caching=h))


@case
def inner_of_views(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h).filter(small)
    out(left.join(t(b, "right", h).map_values(marked), glue))


@case
def inner_of_itself(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    out(left.join(left, glue))


@case
def inner_with_own_view(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    out(left.filter(small).join(left.map_values(marked), glue))


@case
def inner_three(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue).join(t(b, "third", h), glue))


@case
def inner_three_right(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    out(left.join(t(b, "right", h).join(t(b, "third", h), glue), glue))


@case
def inner_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    out(held(t(b, "left", h)).join(t(b, "right", h), glue))


@case
def inner_then_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    out(held(t(b, "left", h).join(t(b, "right", h), glue)))


@case
def inner_aggregates(b: mp.StreamsBuilder, h: bool) -> None:
    left = sums(passing(b, "left"), h)
    totals = b.stream("right", key=String, value=String).group_by_key().reduce(plus, store="totals", caching=h)
    out(left.join(totals, glue))


@case
def inner_to_table(b: mp.StreamsBuilder, h: bool) -> None:
    def by_digit(_k: str, v: str | None) -> Any:
        return None if v is None else f"k{digit(v)}"

    left = t(b, "left", h)
    right = b.stream("right", key=String, value=String).select_key(by_digit, key=String)
    out(left.join(right.to_table(store="rekeyed", key=String, value=String, caching=h), glue))


@case
def inner_origin(b: mp.StreamsBuilder, h: bool) -> None:
    joined = t(b, "left", h).join(t(b, "right", h), glue)
    joined.to_stream().process_values(Origin).to("out", key=String, value=String)


@case
def inner_null(b: mp.StreamsBuilder, h: bool) -> None:
    def unless_small(left: str, right: str) -> Any:
        return None if small(None, left) else left + right

    out(t(b, "left", h).join(t(b, "right", h), unless_small))


@case
def stream_with_joined(b: mp.StreamsBuilder, h: bool) -> None:
    stream = b.stream("third", key=String, value=String)
    both = t(b, "left", h).outer_join(t(b, "right", h), glue)
    stream.left_join(both, glue).to("out", key=String, value=String)


@case
def left(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).left_join(t(b, "right", h), glue))


@case
def left_named_stored(b: mp.StreamsBuilder, h: bool) -> None:
    joined = t(b, "left", h).left_join(
        t(b, "right", h),
        lambda _, mine, other: glue(mine, other),
        with_key=True,
        name="both",
        store="joined",
        value=String,
        caching=h,
    )
    out(joined)


@case
def left_passing(b: mp.StreamsBuilder, h: bool) -> None:
    out(passing(b, "left").left_join(passing(b, "right"), glue))


@case
def left_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).left_join(t(b, "right", h), glue), h))


@case
def left_three(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).left_join(t(b, "right", h), glue).left_join(t(b, "third", h), glue))


@case
def left_three_right(b: mp.StreamsBuilder, h: bool) -> None:
    mine = t(b, "left", h)
    out(mine.left_join(t(b, "right", h).left_join(t(b, "third", h), glue), glue))


@case
def left_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    mine = t(b, "left", h)
    out(mine.left_join(held(t(b, "right", h)), glue))


@case
def outer(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).outer_join(t(b, "right", h), lambda _, mine, other: glue(mine, other), with_key=True))


@case
def outer_stored(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).outer_join(t(b, "right", h), glue, store="joined", value=String, caching=h))


@case
def outer_passing_filtered(b: mp.StreamsBuilder, h: bool) -> None:
    out(passing(b, "left").outer_join(passing(b, "right"), glue).filter_not(lambda _, v: v.startswith("a")))


@case
def outer_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).outer_join(t(b, "right", h), glue), h))


@case
def outer_three(b: mp.StreamsBuilder, h: bool) -> None:
    both = t(b, "left", h).outer_join(t(b, "right", h), glue)
    out(both.outer_join(t(b, "third", h), glue, store="joined", value=String, caching=h))
