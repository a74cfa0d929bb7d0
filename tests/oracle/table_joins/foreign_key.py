"""Joins by a foreign key."""

from __future__ import annotations

from typing import Any

import millpond as mp
from tests.oracle.table_joins.primary_key import Origin, digit, glue, held, marked, out, small, sums, t
from tests.oracle.table_joins.running import case

String = mp.String


def fk(v: str) -> str | None:
    """The foreign key of a value: none for 9, and that of a row that never exists for 0 and 6."""
    return None if digit(v) == 9 else f"k{digit(v) % 6}"


def fk_with_key(k: str, v: str) -> str:
    return f"k{(digit(k) + digit(v)) % 6}"


@case
def fk_inner(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, on=fk))


@case
def fk_inner_named(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, on=fk, name="fk"))


@case
def fk_inner_stored(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, on=fk, store="joined", value=String, caching=h))


@case
def fk_inner_key(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).join(t(b, "right", h), glue, on=fk_with_key))


@case
def fk_inner_defaults(b: mp.StreamsBuilder, h: bool) -> None:
    left: mp.KTable[str, str] = b.table("left")
    right: mp.KTable[str, str] = b.table("right")
    left.join(right, glue, on=fk, store="joined").to_stream().to("out")


@case
def fk_inner_of_views(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h).filter(small)
    out(left.join(t(b, "right", h).map_values(marked), glue, on=fk))


@case
def fk_inner_partitioned(b: mp.StreamsBuilder, h: bool) -> None:
    def of_key(_topic: str, key: str, value: object, partitions: int) -> set[int]:
        return {(len(key) + (value is not None)) % partitions}

    joined = t(b, "left", h).join(
        t(b, "right", h), glue, on=fk, partitioner=of_key, other_partitioner=lambda topic, key, value, partitions: None
    )
    out(joined)


@case
def fk_inner_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).join(t(b, "right", h), glue, on=fk), h))


@case
def fk_inner_null(b: mp.StreamsBuilder, h: bool) -> None:
    def unless_small(left: str, right: str) -> Any:
        return None if small(None, left) else left + right

    out(t(b, "left", h).join(t(b, "right", h), unless_small, on=fk))


@case
def fk_inner_origin(b: mp.StreamsBuilder, h: bool) -> None:
    joined = t(b, "left", h).join(t(b, "right", h), glue, on=fk)
    joined.to_stream().process_values(Origin).to("out", key=String, value=String)


@case
def fk_left(b: mp.StreamsBuilder, h: bool) -> None:
    out(t(b, "left", h).left_join(t(b, "right", h), glue, on=fk))


@case
def fk_left_named_stored(b: mp.StreamsBuilder, h: bool) -> None:
    joined = t(b, "left", h).left_join(
        t(b, "right", h), glue, on=fk, name="fk", store="joined", value=String, caching=h
    )
    out(joined)


@case
def fk_left_of_itself(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    out(left.left_join(left, glue, on=fk))


@case
def fk_left_empty(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    emptied = t(b, "right", h).map_values(lambda v: "" if small(None, v) else v)
    out(left.left_join(emptied, glue, on=fk))


@case
def fk_left_stored_grouped(b: mp.StreamsBuilder, h: bool) -> None:
    out(sums(t(b, "left", h).left_join(t(b, "right", h), glue, on=fk, store="joined", value=String, caching=h), h))


@case
def fk_left_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    left = t(b, "left", h)
    out(left.left_join(held(t(b, "right", h)), glue, on=fk))


@case
def fk_left_three(b: mp.StreamsBuilder, h: bool) -> None:
    both = t(b, "left", h).left_join(t(b, "right", h), glue, on=fk)
    out(both.join(t(b, "third", h), glue, on=fk))


@case
def fk_left_with_primary(b: mp.StreamsBuilder, h: bool) -> None:
    both = t(b, "left", h).left_join(t(b, "right", h), glue)
    out(both.join(t(b, "third", h), glue, on=fk).outer_join(t(b, "fourth", h), glue))
