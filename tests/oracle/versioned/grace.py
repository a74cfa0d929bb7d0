"""Joins of a stream with a versioned table that have a grace period (KIP-923)."""

from __future__ import annotations

from typing import Any

import millpond as mp
from tests.oracle.behaviours import Origin
from tests.oracle.versioned.running import case
from tests.oracle.versioned.tables import String, digit, glue, in_, marked, ms, out, small, t

# What the user functions do; the same in VersionedTables.java.


class Coarse(mp.FixedKeyProcessor[str, str, str]):
    """Times in steps of 50 ms, so that many are equal."""

    def process(self, record: mp.FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_timestamp(record.timestamp // 50 * 50))


def keyed(b: mp.StreamsBuilder) -> mp.KStream[str, str]:
    return in_(b).filter(lambda k, _: k is not None)


@case
def grace_join(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left"), lambda k, v, r: k + v + r, with_key=True, grace=ms(40)))


@case
def grace_left_join(b: mp.StreamsBuilder) -> None:
    s = keyed(b)
    out(s.left_join(t(b, "left"), glue, grace=ms(60)))


@case
def grace_zero(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left"), glue, grace=ms(0)))


@case
def grace_view(b: mp.StreamsBuilder) -> None:
    s = keyed(b)
    out(s.left_join(t(b, "left").filter(small).map_values(marked), glue, grace=ms(25)))


@case
def grace_rekeyed(b: mp.StreamsBuilder) -> None:
    def by_digit(_k: str, v: str) -> Any:
        return None if v is None else f"k{1 + digit(v) % 3}"

    s = in_(b).select_key(by_digit, key=String)
    out(s.join(t(b, "left"), glue, grace=ms(50)))


@case
def grace_named(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    out(s.join(t(b, "left"), glue, grace=ms(40), name="joined").process_values(Origin))


@case
def grace_same_time(b: mp.StreamsBuilder) -> None:
    s = in_(b).process_values(Coarse, value=String)
    out(s.join(t(b, "left"), glue, grace=ms(50)).map_values(lambda v: f"{v}!"))


@case
def grace_then_count(b: mp.StreamsBuilder) -> None:
    s = in_(b)
    joined = s.join(t(b, "left"), glue, grace=ms(30), value=String)
    out(joined.group_by_key().count(store="counts", history_retention=ms(100)))
