"""The application that has every stateful operator: those of `tests/turns`, and those that a Java application lacks.

Timestamps are out of order by less than every grace period, so no record is late, and results do not depend on how the
inputs of a task interleave; where they do, as in joins of tables, they have to be those of one interleaving.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import millpond as mp
from tests.chaos.operators.processors import (
    Answers,
    Counted,
    Seen,
    SentByStreamTime,
    SentByWallClock,
    answered,
    exclaimed,
    sent_twice,
)
from tests.turns.topology import (
    FINALS_RETENTION,
    GRACE,
    RETENTION,
    SECOND,
    WINDOW,
    Inputs,
    Out,
    add_operators,
    added,
    joined,
    pair,
    summed,
    zero,
)

__all__ = ("GRACE_MS", "INPUTS", "OUT", "OUTPUTS", "PARTITIONS", "TOPICS", "WINDOW_MS", "topology")

PARTITIONS = 3
INPUTS = ("left", "right", "table", "other", "versions")
OUT = "out-"
WINDOW_MS, GRACE_MS = 10_000, 20_000
_LONG_HISTORY = timedelta(minutes=5)


class _Texts(dict[str, Any]):
    """The options of a store of texts."""

    def __init__(self, store: str, **more: Any) -> None:
        super().__init__(store=store, key=mp.String, value=mp.String, caching=False, **more)


def topology(*, optimized: bool = False, out: Out | None = None) -> mp.Topology:
    """Return the application; with `optimized`, Kafka Streams' rewrites are applied to it."""
    builder = mp.StreamsBuilder()
    out = Out(OUT) if out is None else out
    inputs = add_operators(builder, out, grace_of_joins=GRACE)
    _add_windows(inputs, out)
    _add_tables(inputs, out)
    _add_processors(builder, inputs, out)
    return builder.build(optimization="all" if optimized else "none")


def _add_windows(inputs: Inputs, out: Out) -> None:
    grouped = inputs.left.group_by_key(key=mp.String, value=mp.String)
    tumbling = mp.TimeWindows(WINDOW, grace=GRACE)
    sliding = mp.SlidingWindows.of_time_difference_and_grace(WINDOW, GRACE)
    sessions = mp.SessionWindows.of_inactivity_gap_and_grace(4 * SECOND, GRACE)
    texts = mp.SessionWindowedSerde(mp.String)
    out.windowed("unlimited", grouped.windowed_by(mp.UnlimitedWindows()).count(store="unlimited", caching=False))
    out.windowed(
        "windows-reduced",
        grouped.windowed_by(tumbling).reduce(joined, retention=RETENTION, **_Texts("windows-reduced")),
        mp.String,
    )
    out.windowed(
        "sliding-aggregated",
        grouped.windowed_by(sliding).aggregate(str, added, **_Texts("sliding-aggregated")),
        mp.String,
    )
    for name, result in (
        ("session-reduced", grouped.windowed_by(sessions).reduce(joined, **_Texts("session-reduced"))),
        (
            "session-aggregated",
            grouped.windowed_by(sessions).aggregate(
                str, added, lambda _key, one, two: f"{one}{two}"[-12:], **_Texts("session-aggregated")
            ),
        ),
    ):
        out.stream(name, result.to_stream(name=f"changes-of-{name}"), texts)
    cogroup = grouped.cogroup(added)
    out.windowed("cogroup-sliding", cogroup.windowed_by(sliding).aggregate(str, **_Texts("cogroup-sliding")), mp.String)
    in_sessions = cogroup.windowed_by(sessions).aggregate(
        str, lambda _key, one, two: f"{one}{two}"[-12:], **_Texts("cogroup-sessions")
    )
    out.stream("cogroup-sessions", in_sessions.to_stream(name="changes-of-cogroup-sessions"), texts)
    both = grouped.cogroup(summed).cogroup(inputs.right.group_by_key(key=mp.String, value=mp.String), summed)
    out.windowed("cogroup-of-two", both.windowed_by(tumbling).aggregate(zero, **_Texts("cogroup-of-two")), mp.String)
    final = grouped.windowed_by(tumbling.advance_by(5 * SECOND)).emit_strategy(mp.EmitStrategy.on_window_close())
    out.windowed("final-hopping", final.count(store="final-hopping", caching=False, retention=FINALS_RETENTION))


def _add_tables(inputs: Inputs, out: Out) -> None:
    grouped = inputs.left.group_by_key(key=mp.String, value=mp.String)
    cached = grouped.aggregate(zero, summed, store="cached", key=mp.String, value=mp.String)
    out.texts("cached", cached)
    counts = grouped.count(store="held-back", caching=False)
    held_back = counts.suppress(mp.until_time_limit(3 * SECOND, max_records=20), name="suppress-table")
    out.longs("suppress-table", held_back)
    out.longs("lru", grouped.count(store="lru", max_entries=7, caching=False))
    out.longs("versioned-count", grouped.count(store="versioned-count", history_retention=_LONG_HISTORY))
    transformed = inputs.table.transform_values(Counted, name="transformed", **_Texts("transformed"))
    out.texts("transformed", transformed)
    out.stream("joined-in-time", inputs.left.join(inputs.versions, pair, grace=GRACE, name="joined-in-time"))
    out.stream("left-joined-in-time", inputs.left.left_join(inputs.versions, pair, grace=GRACE, name="left-in-time"))


def _add_processors(builder: mp.StreamsBuilder, inputs: Inputs, out: Out) -> None:
    builder.add_state_store(mp.StateStoreBuilder(name="seen", supplier=Seen))
    left = inputs.left
    out.stream("own-store", left.process_values(Answers, stores=["seen"], name="own-store", value=mp.String))
    for name, kind in (("by-wall-clock", SentByWallClock), ("by-stream-time", SentByStreamTime)):
        out.stream(name, left.process(kind, name=name, key=mp.String, value=mp.String))
    out.stream("batches", left.map_batches(exclaimed, name="batches", value=mp.String))
    out.stream("async", left.map_values_async(answered, name="async", value=mp.String))
    twice = left.process_async(sent_twice, name="async-twice", key=mp.String, value=mp.String)
    out.stream("async-twice", twice)


def _outputs() -> tuple[str, ...]:
    out = Out(OUT)
    topology(out=out)
    return tuple(out.names)


OUTPUTS = _outputs()
"""The names of all outputs."""

TOPICS = {
    **dict.fromkeys(INPUTS, PARTITIONS),
    "global": 1,
    **dict.fromkeys((f"{OUT}{name}" for name in OUTPUTS), PARTITIONS),
}
"""The number of partitions of each topic that has to exist."""
