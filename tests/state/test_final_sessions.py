"""Each record is in one final session, wherever segments of the store begin, with and without a cache."""

import random
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp

GAP, GRACE = 15, 2
MINUTE = 60_000
Row = tuple[str, float, float, int | None]


def finals(views: list[tuple[str, float]], base: int, *, close: str, caching: bool | None) -> list[Row]:
    """Return key, start, end and count of the final sessions of views at minutes after a time."""
    builder = mp.StreamsBuilder()
    windows = mp.SessionWindows(timedelta(minutes=GAP), grace=timedelta(minutes=GRACE))
    sessions = builder.stream("views", key=mp.String, value=mp.String).group_by_key().windowed_by(windows)
    options: dict[str, Any] = {} if caching is None else {"caching": caching}
    if close == "emit":
        counted = sessions.emit_strategy(mp.EmitStrategy.on_window_close()).count(store="open", **options)
    else:
        counted = sessions.count(store="open", **options).suppress(mp.until_window_closes())
    counted.to_stream().to("final", key=mp.SessionWindowedSerde(mp.String), value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("views", key=mp.String, value=mp.String)
        for user, minute in views:
            topic.pipe_input(user, "/", base + round(minute * MINUTE))
        result = driver.create_output_topic("final", key=mp.SessionWindowedSerde(mp.String), value=mp.Long)
        return [
            (key.key, (key.start_ms - base) / MINUTE, (key.end_ms - base) / MINUTE, count)
            for key, count in result.read_key_values_to_list()
        ]


@pytest.mark.parametrize("close", ["suppress", "emit"])
@pytest.mark.parametrize("caching", [None, False])
def test_a_session_that_was_sent_is_not_merged_into_a_later_one(close: str, caching: bool | None) -> None:
    views = [("ann", 0), ("bob", 17.5), ("ann", 9), ("zed", 480)]
    for half_minutes in range(20):  # a segment is 8.5 minutes
        found = finals(views, 1_767_225_600_000 + half_minutes * 30_000, close=close, caching=caching)
        assert found == [("ann", 0, 0, 1), ("ann", 9, 9, 1), ("bob", 17.5, 17.5, 1)]


def test_final_sessions_count_each_record_once() -> None:
    """They are the same with a cache as without, and with both ways to send final results."""
    random_ = random.Random(7)
    late = 0
    for _ in range(25):
        base = 1_767_225_600_000 + random_.randrange(510_000)
        now, views = 0.0, []
        for _ in range(40):
            now += random_.choice((0, 1, 3, 8, 17.5)) + random_.randrange(1_000) / MINUTE
            views.append((random_.choice("ab"), now - random_.choice((0, 0, 2, 8.5, 12, 16, 17, 25))))
        views.append(("z", now + 1_000))
        ways = [(close, caching) for close in ("suppress", "emit") for caching in (True, False)]
        runs = [finals(views, base, close=close, caching=caching) for close, caching in ways]
        for other in runs[1:]:
            assert sorted(map(str, other)) == sorted(map(str, runs[0]))
        dropped = len(views) - 1 - sum(count or 0 for *_, count in runs[0])
        assert dropped >= 0
        late += dropped
    assert late > 0
