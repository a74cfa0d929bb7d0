"""Final results that wait for stream time are told while the input is quiet: once per pause, at INFO."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import millpond as mp
from millpond.runtime.processing.quiet_windows import QuietInput, QuietLog
from millpond.testing import TopologyTestDriver

START = 1_800_000_000_000
MINUTE = 60_000

Lines = Callable[[], list[str]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.INFO, "millpond.runtime.processing.quiet_windows")
    return lambda: [
        record.getMessage() for record in caplog.records if record.name == "millpond.runtime.processing.quiet_windows"
    ]


def _grouped(builder: mp.StreamsBuilder) -> mp.KGroupedStream[str, str]:
    return builder.stream("views", key=mp.String, value=mp.String).group_by_key()


def _suppressed(builder: mp.StreamsBuilder, until: mp.Suppressed[mp.Windowed[str]]) -> None:
    windows = mp.TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
    _to_out(_grouped(builder).windowed_by(windows).count(store="counts").suppress(until, name="final"))


def _to_out(table: mp.KTable[mp.Windowed[str], int]) -> None:
    table.to_stream().map(lambda windowed, count: (windowed.key, count)).to("out", key=mp.String, value=mp.Long)


def _held_back(builder: mp.StreamsBuilder) -> None:
    _suppressed(builder, mp.until_window_closes())


def _limited(builder: mp.StreamsBuilder) -> None:
    _suppressed(builder, mp.until_time_limit(timedelta(minutes=1)))


def _tumbling(builder: mp.StreamsBuilder) -> None:
    windows = mp.TimeWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
    final = _grouped(builder).windowed_by(windows).emit_strategy(mp.EmitStrategy.on_window_close())
    _to_out(final.count(store="counts"))


def _sliding(builder: mp.StreamsBuilder) -> None:
    windows = mp.SlidingWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
    final = _grouped(builder).windowed_by(windows).emit_strategy(mp.EmitStrategy.on_window_close())
    _to_out(final.count(store="counts"))


def _sessions(builder: mp.StreamsBuilder) -> None:
    windows = mp.SessionWindows(timedelta(minutes=1), grace=timedelta(seconds=10))
    final = _grouped(builder).windowed_by(windows).emit_strategy(mp.EmitStrategy.on_window_close())
    _to_out(final.count(store="counts"))


def _driver(
    application: Callable[[mp.StreamsBuilder], None], wrapper: mp.ProcessorWrapper | None = None
) -> TopologyTestDriver:
    builder = mp.StreamsBuilder(processor_wrapper=wrapper)
    application(builder)
    return TopologyTestDriver(builder.build(), initial_wall_clock=START)


@pytest.mark.parametrize(
    ("application", "store", "due", "wrapper"),
    [
        (_held_back, "final-store", START + 70_000, None),
        (_held_back, "final-store", START + 70_000, mp.ProcessorWrapper()),
        (_tumbling, "counts", START + 70_000, None),
        (_sliding, "counts", START + 10_001, None),
        (_sessions, "counts", START + 70_001, None),
    ],
)
def test_what_waits_is_told_after_five_quiet_minutes(
    lines: Lines,
    application: Callable[[mp.StreamsBuilder], None],
    store: str,
    due: int,
    wrapper: mp.ProcessorWrapper | None,
) -> None:
    """With the store, the number of results, and the time of the record that sends them."""
    with _driver(application, wrapper) as driver:
        views = driver.create_input_topic("views", key=mp.String, value=mp.String)
        views.pipe_input("a", "/", timestamp=START)
        views.pipe_input("b", "/", timestamp=START)
        for _ in range(5):
            driver.advance_wall_clock_time(timedelta(minutes=1))
        assert not lines()
        for _ in range(20):
            driver.advance_wall_clock_time(timedelta(minutes=1))
        assert len(lines()) == 1
        assert lines()[0].startswith(
            f"store '{store}': 2 final results wait in partition 0, where no record was processed for 5 minutes."
        )
        told = (datetime(2027, 1, 15, 8, tzinfo=UTC) + timedelta(milliseconds=due - START)).isoformat(
            timespec="milliseconds" if due % 1000 else "seconds"
        )
        assert f"gets a record of {told.removesuffix('+00:00')}Z or later" in lines()[0]
        results = driver.create_output_topic("out", key=mp.String, value=mp.Long)
        views.pipe_input("c", "/", timestamp=due - 1)
        driver.advance_wall_clock_time(timedelta(minutes=1))
        assert results.is_empty()
        views.pipe_input("c", "/", timestamp=due)
        assert results.read_key_values_to_list()[:2] == [("a", 1), ("b", 1)]


def test_nothing_is_told_of_results_that_are_sent_in_between(lines: Lines) -> None:
    """A table that sends changes after a time limit has no final results."""
    with _driver(_limited) as driver:
        views = driver.create_input_topic("views", key=mp.String, value=mp.String)
        views.pipe_input("a", "/", timestamp=START)
        for _ in range(20):
            driver.advance_wall_clock_time(timedelta(minutes=1))
    assert not lines()


def test_a_record_in_between_begins_a_new_pause(lines: Lines) -> None:
    """Input every four minutes is not quiet."""
    with _driver(_held_back) as driver:
        views = driver.create_input_topic("views", key=mp.String, value=mp.String)
        for _ in range(10):
            views.pipe_input("a", "/", timestamp=START)
            driver.advance_wall_clock_time(timedelta(minutes=4))
    assert not lines()


class Tasks:
    """The tasks of one worker, with one result that waits in each, and a clock."""

    def __init__(self, count: int) -> None:
        self.log, self.now_ms = QuietLog(), START
        self.inputs = [
            QuietInput(self.log, each, [("counts", lambda each=each: (1, START + each, START - 1))])  # type: ignore[misc]
            for each in range(count)
        ]
        self.processed = [1] * count

    def pass_minutes(self, minutes: int, buffered: int = 0) -> None:
        for _ in range(minutes):
            self.now_ms += MINUTE
            for quiet, processed in zip(self.inputs, self.processed, strict=True):
                quiet.check(processed, buffered > 0, self.now_ms)


def test_all_partitions_share_a_line(lines: Lines) -> None:
    """The first result is that of the partition in which it is due first."""
    tasks = Tasks(12)
    tasks.pass_minutes(60)
    assert len(lines()) == 1
    assert lines()[0].startswith("store 'counts': 12 final results wait in partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …,")
    assert "when partition 0 gets a record of 2027-01-15T08:00:00Z or later" in lines()[0]


def test_a_store_is_told_once_per_hour_however_many_pauses_there_are(lines: Lines) -> None:
    """A topic with a record every ten minutes is often quiet."""
    tasks = Tasks(1)
    for _ in range(12):
        tasks.processed[0] += 1
        tasks.pass_minutes(10)
    assert len(lines()) == 2


def test_a_task_that_goes_on_is_not_told(lines: Lines) -> None:
    """Neither one that gets a record while its line waits for others, nor one that closes, nor one with records."""
    tasks = Tasks(2)
    tasks.pass_minutes(6)
    tasks.processed[0] += 1
    tasks.inputs[1].forget()
    tasks.now_ms += MINUTE
    tasks.inputs[0].check(tasks.processed[0], False, tasks.now_ms)
    assert not lines()
    waiting = Tasks(1)
    waiting.pass_minutes(60, buffered=1)
    assert not lines()
