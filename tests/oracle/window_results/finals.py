"""The cases of `EmitStrategy.on_window_close()`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import millpond as mp
from tests.oracle.window_results.cogroups import (
    Origin,
    gap,
    gone,
    grouped,
    merge,
    plus,
    rekeyed,
    slide,
    time,
    win,
    z,
)
from tests.oracle.window_results.running import MS, String, case, out, out_windowed, s

DAY = timedelta(days=1)
CLOSE = mp.EmitStrategy.on_window_close()


def closing(b: mp.StreamsBuilder, windows: mp.TimeWindows | mp.SlidingWindows) -> mp.TimeWindowedKStream[str, str]:
    return grouped(b, "left").windowed_by(windows).emit_strategy(CLOSE)


def closing_sessions(b: mp.StreamsBuilder, windows: mp.SessionWindows) -> mp.SessionWindowedKStream[str, str]:
    return grouped(b, "left").windowed_by(windows).emit_strategy(CLOSE)


def counts(caching: bool) -> mp.MaterializedWindows[str, int]:
    return {"store": "sums", "key": String, "value": mp.Long, "retention": DAY, "caching": caching}


def adding(x: str, y: str | None) -> str:
    return plus("", y, x)


@case
def final_tumbling_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, time(60, 60, 20)).count(**counts(h)))


@case
def final_tumbling_retention(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, time(100, 100, 50)).aggregate(z, plus, retention=600 * MS, **win(h)))


@case
def final_tumbling_no_store(b: mp.StreamsBuilder, _h: bool) -> None:
    out_windowed(closing(b, time(100, 100, 50)).count())


@case
def final_hopping_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, time(90, 40, 30)).aggregate(z, gone, retention=DAY, **win(h)))


@case
def final_hopping_reduce_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    windowed = s(b, "left").filter(lambda _, v: v is not None).group_by_key().windowed_by(time(60, 25, 10))
    reduced = windowed.emit_strategy(CLOSE).reduce(adding, retention=DAY, persistent=False, **win(h))
    out_windowed(reduced)


@case
def final_sliding_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, slide(50, 40)).count(**counts(h)))


@case
def final_sliding_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, slide(70, 60)).aggregate(z, gone, retention=DAY, **win(h)))


@case
def final_sliding_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, slide(30, 0)).count(persistent=False, **counts(h)))


@case
def final_session_count(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing_sessions(b, gap(20, 0)).count(**counts(h)))


@case
def final_session_aggregate(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing_sessions(b, gap(25, 40)).aggregate(z, gone, merge, **win(h)))


@case
def final_session_reduce_in_memory(b: mp.StreamsBuilder, h: bool) -> None:
    reduced = closing_sessions(b, gap(30, 30)).reduce(adding, retention=DAY, persistent=False, **win(h))
    out_windowed(reduced)


@case
def final_regrouped(b: mp.StreamsBuilder, h: bool) -> None:
    windowed = rekeyed(b, "left").windowed_by(time(60, 60, 20)).emit_strategy(CLOSE)
    groups = windowed.count(**counts(h)).group_by(lambda k, v: (k.key, v), key=String, value=mp.Long)
    sums = groups.reduce(lambda x, y: x + y, lambda x, y: x - y, key=String, value=mp.Long, caching=h)
    out(sums.to_stream())


@case
def final_suppressed(b: mp.StreamsBuilder, h: bool) -> None:
    out_windowed(closing(b, time(60, 60, 20)).count(**counts(h)).suppress(mp.until_window_closes()))


@case
def final_update(b: mp.StreamsBuilder, h: bool) -> None:
    update = closing(b, time(60, 60, 20)).emit_strategy(mp.EmitStrategy.on_window_update())
    out_windowed(update.count(**counts(h)))


@case
def final_origin(b: mp.StreamsBuilder, h: bool) -> None:
    results = closing(b, time(60, 60, 20)).aggregate(z, plus, retention=DAY, **win(h))
    windowed = cast("Any", mp.TimeWindowedSerde(String, 60 * MS))
    out_windowed(results.to_stream().process_values(Origin).to_table(key=windowed, value=String))
