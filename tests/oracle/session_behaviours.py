"""The cases of session windows; see `behaviours`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from tests.oracle.behaviours import Long, Origin, String, Thrice, case, in_, less, out, out_windowed, plus

MS = timedelta(milliseconds=1)


def gap(stream: mp.KStream[str, str], gap_ms: int, grace_ms: int) -> mp.SessionWindowedKStream[str, str]:
    return stream.group_by_key().windowed_by(mp.SessionWindows.of_inactivity_gap_and_grace(gap_ms * MS, grace_ms * MS))


def longer(caching: bool) -> Any:
    """With a cache, Kafka Streams finds sessions that have expired for as long as the cache has them: none expires."""
    return {"retention": 100_000 * MS} if caching else {}


def plus_null(a: str, b: str | None) -> str:
    return plus(a, "n0" if b is None else b)


@case
def session_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b), 20, 0).count(store="sessions", caching=h))


@case
def session_count_grace(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b), 25, 60).count(store="sessions", caching=h, retention=100 * MS))


@case
def session_count_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b), 25, 20).count(store="sessions", caching=h, persistent=False))


@case
def session_reduce(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b), 20, 50).reduce(plus_null, store="sessions", caching=h))


@case
def session_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    def add(_k: str, v: str | None, a: str) -> Any:
        return None if v is None else plus(a, v)

    def merge(_k: str, x: str, y: str) -> str:
        return less(x, y)

    out_windowed(gap(in_(b), 30, 30).aggregate(lambda: "z0", add, merge, store="sessions", value=String, caching=h))


@case
def session_put_again(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b).process_values(Thrice, value=String), 15, 200).count(store="sessions", caching=h))


@case
def session_filter_group(b: mp.StreamsBuilder, h: bool) -> None:
    sums = gap(in_(b), 30, 30).reduce(plus_null, store="sessions", caching=h).filter(lambda _, v: len(v) > 3)
    grouped = sums.group_by(lambda k, v: (k.key, v), key=String, value=String)
    out(grouped.reduce(plus, less, store="r", caching=h).to_stream())


@case
def session_suppress(b: mp.StreamsBuilder, h: bool) -> None:
    counts = gap(in_(b), 20, 10).count(store="sessions", caching=h)
    out_windowed(counts.suppress(mp.until_window_closes()))


@case
def session_origin(b: mp.StreamsBuilder, h: bool) -> None:
    counts = gap(in_(b), 30, 10).count(store="sessions", caching=h, **longer(h)).map_values(str)
    changes = counts.to_stream().process_values(Origin)
    out_windowed(changes.to_table(key=mp.SessionWindowedSerde(String), value=String))


@case
def session_not_logged(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(gap(in_(b), 20, 0).count(store="sessions", value=Long, caching=h, logging=False))
