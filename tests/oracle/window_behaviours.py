"""Behaviours of aggregations by sliding and unlimited windows, and of results that are sent when a window closes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.behaviours import String, case, in_, letter, out, out_windowed, plus

MS = timedelta(milliseconds=1)


def sliding(difference_ms: int, grace_ms: int) -> mp.SlidingWindows:
    return mp.SlidingWindows.of_time_difference_and_grace(difference_ms * MS, grace_ms * MS)


def by_sliding(b: mp.StreamsBuilder, difference_ms: int, grace_ms: int) -> mp.TimeWindowedKStream[str, str]:
    return in_(b).group_by_key().windowed_by(sliding(difference_ms, grace_ms))


@case
def sliding_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(by_sliding(b, 60, 50).count(caching=h))


@case
def sliding_count_without_grace(b: mp.StreamsBuilder, h: bool) -> None:
    windows = mp.SlidingWindows.of_time_difference_with_no_grace(30 * MS)
    out_windowed(in_(b).group_by_key().windowed_by(windows).count(caching=h))


@case
def sliding_count_early(b: mp.StreamsBuilder, h: bool) -> None:
    # The records begin at 1000, so the first ones are before the time difference.
    out_windowed(by_sliding(b, 2000, 90).count(caching=h))


@case
def sliding_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(by_sliding(b, 100, 200).reduce(plus, caching=h))


@case
def sliding_reduce_early(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(by_sliding(b, 1200, 40).reduce(plus, caching=h))


@case
def sliding_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    def add(k: str, v: str, a: str) -> Any:
        return None if v.startswith("a") else plus(a, k + v)

    out_windowed(by_sliding(b, 80, 60).aggregate(lambda: "z0", add, value=String, caching=h))


@case
def sliding_aggregate_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    add = lambda _, v, a: plus(a, v)
    out_windowed(by_sliding(b, 90, 30).aggregate(lambda: "z0", add, value=String, caching=h, persistent=False))


@case
def sliding_group_by_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    grouped = in_(b).group_by(lambda _, v: letter(v), key=String)
    out_windowed(grouped.windowed_by(sliding(70, 70)).reduce(plus, caching=h))


@case
def sliding_regrouped(b: mp.StreamsBuilder, h: bool) -> None:
    sums = by_sliding(b, 50, 100).reduce(plus, caching=True)
    regrouped = sums.group_by(lambda k, v: (k.key, v), key=String, value=String)
    out(regrouped.count(store="c", caching=h).to_stream())


@case
def unlimited_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(in_(b).group_by_key().windowed_by(mp.UnlimitedWindows.of()).count(caching=h))


@case
def unlimited_reduce_from_start(b: mp.StreamsBuilder, h: bool) -> None:
    start = mp.UnlimitedWindows.of().start_on(mp.Window(2000, 2001).start_time)
    reduced = in_(b).filter(lambda _, v: v is not None).group_by_key().windowed_by(start).reduce(plus, caching=h)
    out_windowed(reduced)
