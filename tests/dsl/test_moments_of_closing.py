"""Sessions and sliding windows have inclusive ends: what happens in the very millisecond in which they close."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from tests.support import seeds

Sent = list[tuple[str, int]]
SECOND = timedelta(seconds=1)
BASE_MS = 1_767_225_600_000

WAYS: dict[str, Callable[[Any, dict[str, Any]], mp.KTable[Any, int]]] = {
    "suppress": lambda windowed, options: windowed.count(store="counts", **options).suppress(mp.until_window_closes()),
    "emit": lambda windowed, options: windowed.emit_strategy(mp.EmitStrategy.on_window_close()).count(
        store="counts", **options
    ),
}


def finals(windows: Any, sent: Sent, how: str, options: dict[str, Any]) -> tuple[list[tuple[Any, int]], int]:
    """Return the final counts of records at seconds, and how many records were dropped as late."""
    builder = mp.StreamsBuilder()
    grouped = builder.stream("in", key=mp.String, value=mp.String).group_by_key()
    counts = WAYS[how](grouped.windowed_by(windows), options)
    key: Any = (
        mp.SessionWindowedSerde(mp.String)
        if isinstance(windows, mp.SessionWindows)
        else mp.TimeWindowedSerde(mp.String, windows.time_difference)
    )
    counts.to_stream().to("out", key=key, value=mp.Long)
    with mp.testing.TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for name, second in [*sent, ("end", 100_000)]:
            topic.pipe_input(name, "v", BASE_MS + second * 1_000)
        return driver.create_output_topic("out", key=key, value=mp.Long).read_key_values_to_list(), driver.metrics()[
            "dropped"
        ]


def _records(chance: random.Random) -> Sent:
    """Records at whole seconds: often exactly when a window closes."""
    now, sent = 100, []
    for _ in range(40):
        now += chance.choice((0, 0, 1, 2))
        sent.append((chance.choice("abc"), now - chance.choice((0, 0, 0, 1, 2, 4, 7))))
    return sent


def _options(chance: random.Random, how: str) -> dict[str, Any]:
    options: dict[str, Any] = {"persistent": chance.choice((True, False))}
    if how == "suppress":
        options["caching"] = chance.choice((True, False))
    if chance.random() < 0.5:
        options["retention"] = timedelta(hours=1)
    return options


@pytest.mark.parametrize("how", WAYS)
def test_each_record_is_in_one_final_session_or_counted_as_late(how: str) -> None:
    """In Kafka Streams, the store has lost a session in the millisecond in which it still takes a record."""
    for run in range(60):
        chance = random.Random(seeds.derived(seeds.RUN, f"sessions {how} {run}"))
        windows = mp.SessionWindows(chance.choice((2, 3)) * SECOND, grace=chance.choice((0, 2, 5)) * SECOND)
        sent, options = _records(chance), _options(chance, how)
        found, dropped = finals(windows, sent, how, options)
        assert sum(count for _, count in found) + dropped == len(sent), (run, windows, options, sent)
        assert max(Counter(window for window, _ in found).values()) == 1, (run, windows, options, sent)


def test_a_record_at_the_gap_joins_its_session_whatever_another_key_does() -> None:
    """It is in order, and the session takes records up to the gap, the last millisecond included."""
    windows = mp.SessionWindows(3 * SECOND)
    for sent in ([("a", 0), ("a", 3)], [("a", 0), ("b", 3), ("a", 3)]):
        found, dropped = finals(windows, sent, "suppress", {})
        window, count = found[0]
        assert (window.start_ms - BASE_MS, window.end_ms - BASE_MS, count) == (0, 3_000, 2)
        assert dropped == 0


@pytest.mark.parametrize("how", WAYS)
def test_each_sliding_window_has_one_final_result_with_all_records_that_it_took(how: str) -> None:
    """Both ways to send final results have the same ones, and no window is sent again."""
    for run in range(30):
        chance = random.Random(seeds.derived(seeds.RUN, f"sliding {run}"))
        windows = mp.SlidingWindows.of_time_difference_and_grace(
            chance.choice((2, 3)) * SECOND, chance.choice((0, 2, 5)) * SECOND
        )
        sent = _records(chance)
        found, _ = finals(windows, sent, how, _options(chance, how))
        other, _ = finals(windows, sent, "emit" if how == "suppress" else "suppress", {})
        assert max(Counter(window for window, _ in found).values()) == 1, (run, windows, sent)
        assert sorted(map(str, found)) == sorted(map(str, other)), (run, windows, sent)
