"""Operators and stores, with records that write a row, and records that read it."""

from __future__ import annotations

import millpond as mp

from .operators import (
    aggregate,
    buffered,
    cogrouped,
    foreign,
    global_join,
    grouped,
    lookup_join,
    numbers,
    out,
    rows_of_a_group,
    self_join,
    sessions,
    source_join,
    stream,
    stream_join,
    suppressed,
    table,
    table_aggregate,
    table_join,
    windowed,
)
from .processors import (
    READS,
    SESSION_READS,
    VERSIONED_READS,
    WINDOW_READS,
    _put,
    _put_session,
    _put_timed,
    _put_timed_window,
    _put_version,
    _put_window,
    few_keys,
    keys,
    many_windows_of,
    ordered_windows_of,
    processor,
    punctuated,
    read_only,
    sessions_of,
    timed_keys,
    versions_of,
    windows_of,
)
from .running import AGAIN, HOUR, LATE, LATER, MINUTE, ONE, Case, M

CASES: dict[str, Case] = {
    "aggregate": Case("totals", lambda b, t: out(aggregate(grouped(b), t)), ONE, AGAIN),
    "aggregate, cached": Case("totals", lambda b, t: out(aggregate(grouped(b), t, caching=True)), ONE, AGAIN),
    "reduce": Case(
        "totals",
        lambda b, t: out(
            stream(b, t).group_by_key(key=mp.String, value=t.serde).reduce(t.add, store="totals", value=t.serde)
        ),
        ONE,
        AGAIN,
    ),
    "time windows": Case("totals", lambda b, t: out(aggregate(windowed(b), t)), ONE, AGAIN),
    "time windows, cached": Case("totals", lambda b, t: out(aggregate(windowed(b), t, caching=True)), ONE, AGAIN),
    "final time windows": Case(
        "totals", lambda b, t: out(aggregate(windowed(b, final=True), t)), ONE, [("in", "b", 3, 5 * M)]
    ),
    "sliding windows": Case(
        "totals", lambda b, t: out(aggregate(windowed(b, mp.SlidingWindows(MINUTE)), t)), ONE, AGAIN
    ),
    "final sliding windows": Case(
        "totals",
        lambda b, t: out(aggregate(windowed(b, mp.SlidingWindows(MINUTE), final=True), t)),
        [("in", "a", 1, M)],
        [("in", "b", 3, 9 * M)],
    ),
    "sessions": Case("totals", lambda b, t: out(sessions(b, t)), ONE, AGAIN),
    "sessions, cached": Case("totals", lambda b, t: out(sessions(b, t, caching=True)), ONE, AGAIN),
    "final sessions": Case("totals", lambda b, t: out(sessions(b, t, final=True)), ONE, [("in", "b", 3, 5 * M)]),
    "suppress until windows close": Case("held-store", suppressed(mp.until_window_closes()), ONE, LATE),
    "suppress for a time": Case("held-store", suppressed(mp.until_time_limit(MINUTE)), ONE, LATE),
    "suppress up to a number": Case("held-store", suppressed(mp.until_time_limit(HOUR, max_records=1)), ONE, LATE),
    "inner join of streams, left store": Case(
        "pairs-this-join-store", stream_join("join"), [("left", "a", 1, 0)], [("right", "a", 2, 1)]
    ),
    "inner join of streams, right store": Case(
        "pairs-other-join-store", stream_join("join"), [("right", "a", 1, 0)], [("left", "a", 2, 1)]
    ),
    "left join of streams, left store": Case(
        "pairs-this-join-store", stream_join("left_join"), [("left", "a", 1, 0)], [("right", "a", 2, 1)]
    ),
    "left join of streams, right store": Case(
        "pairs-outer-other-join-store", stream_join("left_join"), [("right", "a", 1, 0)], [("left", "a", 2, 1)]
    ),
    "outer join of streams, left store": Case(
        "pairs-outer-this-join-store", stream_join("outer_join"), [("left", "a", 1, 0)], [("right", "a", 2, 1)]
    ),
    "outer join of streams, right store": Case(
        "pairs-outer-other-join-store", stream_join("outer_join"), [("right", "a", 1, 0)], [("left", "a", 2, 1)]
    ),
    "unmatched records of the left side": Case(
        "pairs-left-shared-join-store", stream_join("left_join"), [("left", "a", 1, 0)], [("left", "b", 2, 9 * M)]
    ),
    "unmatched records of both sides": Case(
        "pairs-outer-shared-join-store", stream_join("outer_join"), [("left", "a", 1, 0), ("right", "b", 1, 0)],
        [("right", "c", 2, 9 * M)],
    ),
    "join of a stream with itself": Case("pairs-other-join-store", self_join, ONE, AGAIN),
    "optimized join of a stream with itself": Case("pairs-this-join-store", self_join, ONE, AGAIN, "all"),
    "optimized join of a stream with itself, later record": Case(
        "pairs-this-join-store", self_join, [("in", "a", 1, 2)], [("in", "a", 2, 1)], "all"
    ),
    "to_table": Case("in", lambda b, t: out(table(b, t, "in").to_stream()), ONE, AGAIN),
    "to_table, cached": Case("in", lambda b, t: out(table(b, t, "in", caching=True).to_stream()), ONE, AGAIN),
    "table filter with a store": Case(
        "kept",
        lambda b, t: out(
            numbers(b).map_values(t.make, value=t.serde).filter(lambda _, row: row.n > 0, store="kept", value=t.serde)
        ),
        ONE,
        AGAIN,
    ),
    "table map with a cached store": Case(
        "kept",
        lambda b, t: out(numbers(b).map_values(t.make, store="kept", value=t.serde, caching=True)),
        ONE,
        AGAIN,
    ),
    "read-only store of a topic": Case("own", read_only, [("rows", "a", 1, 0)], AGAIN, of_topic=True),
    "global table": Case("rows", global_join("join"), [("rows", "a", 1, 0)], AGAIN, of_topic=True),
    "global table, left join": Case("rows", global_join("left_join"), [("rows", "a", 1, 0)], AGAIN, of_topic=True),
    "optimized table": Case("rows", source_join, [("rows", "a", 1, 0)], AGAIN, "all", of_topic=True),
    "punctuator": Case("own", punctuated, ONE, [("in", "b", 2, 5 * M)]),
    "join with a table": Case("rows", lookup_join("join"), [("rows", "a", 1, 0)], AGAIN),
    "left join with a table": Case("rows", lookup_join("left_join"), [("rows", "a", 1, 0)], AGAIN),
    "join with a versioned table": Case(
        "rows", lookup_join("join", history_retention=HOUR), [("rows", "a", 1, 0)], AGAIN
    ),
    "join with a grace period, table": Case(
        "rows", lookup_join("join", MINUTE, history_retention=HOUR), [("rows", "a", 1, 0)], LATER
    ),
    "join with a grace period, buffer": Case("late-Buffer", buffered, [("rows", "a", 7, 0), *ONE], LATE),
    **{
        f"{kind} of tables, {side} store": Case(side, table_join(kind), [(side, "a", 1, 0)], [(other, "a", 2, 1)])
        for kind in ("join", "left_join", "outer_join")
        for side, other in (("left", "right"), ("right", "left"))
    },
    **{
        f"{kind} of cached tables, {side} store": Case(
            side, table_join(kind, caching=True), [(side, "a", 1, 0)], [(other, "a", 2, 1)]
        )
        for kind in ("join", "left_join", "outer_join")
        for side, other in (("left", "right"), ("right", "left"))
    },
    "put over a row of cached tables": Case(
        "left", table_join("outer_join", caching=True), [("left", "a", 1, 0)], [("left", "a", 2, 1)]
    ),
    "cogroup": Case("totals", cogrouped, ONE, AGAIN),
    "table aggregate, cached": Case("totals", lambda b, t: table_aggregate(b, t, caching=True), ONE, AGAIN),
    "sliding windows, cached": Case(
        "totals", lambda b, t: out(aggregate(windowed(b, mp.SlidingWindows(MINUTE)), t, caching=True)), ONE, AGAIN
    ),
    "table aggregate": Case("totals", table_aggregate, ONE, AGAIN),
    "rows that a table's subtractor gets": Case("in", rows_of_a_group, ONE, AGAIN),
    "foreign key join, left row": Case("left", foreign("join"), [("left", "a", 1, 0)], [("right", "r1", 2, 1)]),
    "foreign key join, right row": Case("right", foreign("join"), [("right", "r2", 1, 0)], [("left", "a", 2, 1)]),
    "foreign key left join, left row": Case(
        "left", foreign("left_join"), [("left", "a", 1, 0)], [("right", "r1", 2, 1)]
    ),
    **{
        f"key-value store, {name}": Case("own", processor(keys, _put, read), ONE, AGAIN)
        for name, read in READS.items()
    },
    **{
        f"key-value store with timestamps, {name}": Case("own", processor(timed_keys, _put_timed, read), ONE, AGAIN)
        for name, read in READS.items() if name != "put_if_absent"
    },
    **{
        f"LRU store, {name}": Case("own", processor(few_keys, _put, READS[name]), ONE, AGAIN)
        for name in ("get", "all", "range")
    },
    **{
        f"{kind}, {name}": Case("own", processor(make, put, read), ONE, AGAIN)
        for kind, make, put in (
            ("window store", windows_of, _put_window),
            ("time-ordered window store", ordered_windows_of, _put_timed_window),
            ("window store with duplicates", many_windows_of, _put_window),
        )
        for name, read in WINDOW_READS.items()
        if (kind, name) != ("window store with duplicates", "fetch")
    },
    **{
        f"session store, {name}": Case("own", processor(sessions_of, _put_session, read), ONE, AGAIN)
        for name, read in SESSION_READS.items()
    },
    **{
        f"versioned store, {name}": Case("own", processor(versions_of, _put_version, read), ONE, AGAIN)
        for name, read in VERSIONED_READS.items()
    },
}  # fmt: skip
