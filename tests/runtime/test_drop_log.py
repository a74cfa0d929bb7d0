"""Dropped records are logged once per period, node and reason, and counted by reason."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.drops import Drop
from millpond.runtime.processing.drop_log import DropLog, LateWindow
from millpond.testing import TopologyTestDriver

START = 1_800_000_000_000


class Task:
    """The place of a record, and a clock."""

    topic, partition, task_id = "views", 3, "0_3"

    def __init__(self) -> None:
        self.offset, self.now = 0, START

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "millpond.runtime.processing.drop_log")
    return lambda: [record.getMessage() for record in caplog.records]


def test_the_first_drop_is_told_at_once_and_later_ones_once_per_period(lines: Any) -> None:
    """A line has the number since the last one, and the first of these records."""
    log, task = DropLog(), Task()
    for task.offset in range(5):
        log.note("count", Drop.NULL_KEY, task)
    log.report(task.now + 59_999)
    assert len(lines()) == 1
    assert lines()[0].startswith("node 'count' dropped a record without a key (views-3 offset 0). ")
    log.report(task.now + 60_000)
    log.report(task.now + 60_000)
    assert len(lines()) == 2
    assert lines()[1].startswith("node 'count' dropped 4 records without a key in the last 1 min (views-3 offset 1). ")
    assert log.pending == 0


def test_a_drop_after_a_quiet_period_is_told_at_once(lines: Any) -> None:
    """The period begins with the last line."""
    log, task = DropLog(), Task()
    log.note("count", Drop.NULL_KEY, task)
    task.now += 60_000
    log.note("count", Drop.NULL_KEY, task)
    assert len(lines()) == 2


def test_the_rest_is_told_at_the_end(lines: Any) -> None:
    """A task that closes leaves nothing untold."""
    log, task = DropLog(), Task()
    for _ in range(3):
        log.note("count", Drop.NULL_VALUE, task)
    log.report()
    assert "dropped 2 records without a value" in lines()[1]


def test_the_latest_of_several_late_records_is_shown(lines: Any) -> None:
    """Its window, how late it was, and the grace that keeps it, are those of the record that was latest."""
    log, task = DropLog(), Task()
    for task.offset, late_by in enumerate((1_000, 2_000, 7_250, 3_000)):
        log.note("sums", Drop.LATE, task, LateWindow(START, START + 60_000, START + 90_000, START + 90_000 + late_by))
    log.report()
    assert lines()[1] == (
        "node 'sums' dropped late records for 3 closed windows in the last 1 min: the window of the latest one, at "
        "views-3 offset 2, from 2027-01-15T08:00:00Z to 2027-01-15T08:01:00Z ended 37.25 s before stream time, and "
        "closed 30 s after its end. "
        "A grace= that is longer by more than 7.25 s keeps such records."
    )


@pytest.mark.parametrize(
    ("late_by", "shown"),
    [
        (0, "0 s"),
        (7, "0.007 s"),
        (37_250, "37.25 s"),
        (60_000, "1 min"),
        (1_920_000, "32 min"),
        (14_023_500, "3 h 53 min 43.5 s"),
        (183_600_000, "2 d 3 h"),
    ],
)
def test_durations_have_one_form(lines: Any, late_by: int, shown: str) -> None:
    """Short and long ones, and exact: a grace of a rounded duration may be too short."""
    log, task = DropLog(), Task()
    log.note("sums", Drop.LATE, task, LateWindow(START, START + 60_000, START + 60_000, START + 60_000 + late_by))
    assert f"ended {shown} before stream time, and has no grace. A grace= of more than {shown} keeps" in lines()[0]


def test_nodes_and_reasons_have_lines_of_their_own_and_harmless_ones_none(lines: Any) -> None:
    """An outdated record loses nothing, and a failed one has a line of its handler."""
    log, task = DropLog(), Task()
    for reason in Drop:
        if reason is not Drop.LATE:
            log.note("a", reason, task)
    log.note("b", Drop.NULL_KEY, task)
    assert len(lines()) == 6
    assert not any("outdated" in line or "failed" in line for line in lines())


def test_the_grace_that_a_line_advises_keeps_the_record(lines: Any) -> None:
    """One millisecond more than the advice is enough, and the advice itself is not."""
    for grace, kept in ((90_000, 0), (90_001, 1)):
        builder = mp.StreamsBuilder()
        windows = mp.TimeWindows(timedelta(minutes=1), grace=timedelta(milliseconds=grace))
        views = builder.stream("views", key=mp.String, value=mp.String)
        views.group_by_key().windowed_by(windows).count(store="counts")
        with TopologyTestDriver(builder.build()) as driver:
            topic = driver.create_input_topic("views", key=mp.String, value=mp.String)
            topic.pipe_input("a", "", timestamp=START + 150_000)
            topic.pipe_input("a", "", timestamp=START)
            assert len(list(driver.get_window_store("counts").fetch("a", START, START))) == kept
    assert [line.rpartition(" keeps")[0].split("more than ")[1] for line in lines()] == ["0 s"]


def test_drops_are_counted_by_reason() -> None:
    """The counts are those of the metric, and their sum is the number of dropped records."""
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String)
    minutes = mp.TimeWindows(timedelta(minutes=1))
    views.group_by_key().windowed_by(minutes).reduce(lambda one, _other: one, store="firsts")
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": "continue"}) as driver:
        topic = driver.create_input_topic("views", key=mp.String, value=mp.String)
        for key, timestamp in (("a", START), (None, START), ("a", START + 60_000), ("a", START)):
            topic.pipe_input(key, "x", timestamp=timestamp)
        context = driver._task.context
        assert {reason: count for reason, count in context.drops.items() if count} == {Drop.NULL_KEY: 1, Drop.LATE: 1}
        assert driver.metrics()["dropped"] == context.dropped == 2


def test_records_without_a_key_before_a_repartition_are_told(lines: Any) -> None:
    """Kafka Streams drops them without a word or a count, so only the count by reason has them."""
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String)
    views.group_by(lambda _key, value: value or None, key=mp.String).count(store="counts")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("views", key=mp.String, value=mp.String).pipe_input("a", "")
        context = driver._task.context
        assert (context.dropped, context.drops[Drop.NULL_KEY]) == (0, 1)
    assert "'counts-repartition-filter' dropped a record without a key (views-0 offset 0)" in lines()[0]


def test_late_sessions_and_sliding_windows_tell_when_they_closed(lines: Any) -> None:
    """A session closes its gap and grace after its end; a sliding window includes its end."""
    builder = mp.StreamsBuilder()
    views = builder.stream("views", key=mp.String, value=mp.String).group_by_key()
    views.windowed_by(mp.SessionWindows(timedelta(seconds=10), grace=timedelta(seconds=5))).count(store="sessions")
    views.windowed_by(mp.SlidingWindows(timedelta(seconds=10), grace=timedelta(seconds=5))).count(store="sliding")
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("views", key=mp.String, value=mp.String)
        topic.pipe_input("a", "", timestamp=START + 100_000)
        topic.pipe_input("a", "", timestamp=START)
    session, sliding = lines()
    assert "closed 15 s after its end. A grace= that is longer by more than 1 min 25 s" in session
    assert "from 2027-01-15T08:00:00Z to 2027-01-15T08:00:10Z ended 1 min 30 s before stream time" in sliding
    assert "closed 5 s after its end. A grace= that is longer by more than 1 min 25 s" in sliding


def test_a_store_tells_of_updates_of_expired_windows(lines: Any) -> None:
    """A processor that puts into a window older than the retention loses it, which a line says."""
    store = mp.WindowStoreBuilder(
        name="seen", key=mp.String, value=mp.String, retention_ms=600_000, window_size_ms=60_000
    )

    class Seen(mp.Processor[str, str, str, str]):
        def process(self, record: mp.Record[str, str]) -> None:
            seen: mp.WindowStore[str, str] = self.context.get_state_store("seen")
            seen.put(record.key, record.value, record.timestamp)

    builder = mp.StreamsBuilder()
    builder.add_state_store(store)
    builder.stream("views", key=mp.String, value=mp.String).process(Seen, stores=["seen"])
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("views", key=mp.String, value=mp.String)
        for timestamp in (START, START - 86_400_000, START - 86_400_000):
            topic.pipe_input("a", "x", timestamp=timestamp)
    assert lines() == [
        "store 'seen' dropped 1 update of windows that end more than its retention of 10 min before the latest one. "
        "Give it a longer retention= to keep them."
    ]


JOINED = mp.JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=2))


def _joined(kind: str = "join") -> TopologyTestDriver:
    builder = mp.StreamsBuilder()
    orders, paid = (builder.stream(topic, key=mp.String, value=mp.String) for topic in ("orders", "paid"))
    joined = getattr(orders, kind)(paid, lambda order, payment: f"{order} {payment}", JOINED, name="outcomes")
    joined.to("out", key=mp.String, value=mp.String)
    return TopologyTestDriver(builder.build())


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_a_join_tells_of_records_whose_results_are_missing(lines: Any, kind: str) -> None:
    """They count as late for the alert, with a reason of their own, and not as dropped; each counts once."""
    hour = 3_600_000
    with _joined(kind) as driver:
        orders, paid = (
            driver.create_input_topic(topic, key=mp.String, value=mp.String) for topic in ("orders", "paid")
        )
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        for topic in (orders, paid):
            topic.pipe_input("new", "x", timestamp=START + hour)
        out.read_values_to_list()
        for topic in (orders, paid):
            topic.pipe_input("a", "x", timestamp=START)
        assert "x x" not in out.read_values_to_list()
        context = driver._task.context
        assert (context.late, context.drops[Drop.LATE_FOR_JOIN], context.dropped) == (2, 2, 0)
        assert context.drops[Drop.LATE] == 0
    (first, second) = lines()
    assert first == (
        "join 'outcomes': results of a record may be missing, since it came after the join's windows and grace had "
        "passed. The first is orders-0 offset 1. A grace of the join's windows that is longer by more than 53 min "
        "keeps such records."  # nothing of repartition topics, since the topology has none
    )
    assert "The first is paid-0 offset 1" in second


def test_a_late_record_that_finds_a_partner_is_no_loss(lines: Any) -> None:
    """The store has partners for longer than the windows and grace."""
    with _joined() as driver:
        orders, paid = (
            driver.create_input_topic(topic, key=mp.String, value=mp.String) for topic in ("orders", "paid")
        )
        orders.pipe_input("a", "x", timestamp=START)
        orders.pipe_input("b", "x", timestamp=START + 719_000)
        paid.pipe_input("a", "y", timestamp=START)
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list() == ["x y"]
        assert driver._task.context.late == 0
    assert lines() == []


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("join", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("late_s", [899, 901, 1_200, 1_499, 1_500, 2_000])
def test_a_partner_that_is_gone_is_told_although_others_would_be_there(
    side: str, join: str, late_s: int, lines: Any
) -> None:
    """With a window to one side, the beginning of a late record's window is gone long before its end."""
    windows = mp.JoinWindows.of_time_difference_and_grace(timedelta(minutes=10), timedelta(minutes=5))
    windows = getattr(windows, side)(timedelta(0))
    builder = mp.StreamsBuilder()
    left, right = (builder.stream(topic, key=mp.String, value=mp.String) for topic in ("left", "right"))
    joined = getattr(left, join)(right, lambda one, other: f"{one} {other}", windows)
    joined.to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(builder.build()) as driver:
        topics = [driver.create_input_topic(name, key=mp.String, value=mp.String) for name in ("left", "right")]
        late, early = topics if side == "before" else topics[::-1]
        early.pipe_input("a", "x", timestamp=START)
        early.pipe_input("b", "x", timestamp=START + late_s * 1_000)
        late.pipe_input("a", "y", timestamp=START)
        found = driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list()
        assert any("x" in each and "y" in each for each in found) == (late_s == 899)
    assert ["may be missing" in line for line in lines()] == ([] if late_s == 899 else [True])


def _shop(config: dict[str, Any]) -> TopologyTestDriver:
    builder = mp.StreamsBuilder()
    orders = builder.stream("orders", key=mp.String, value=mp.Long)
    orders.map_values(lambda value: 10 // value).to("shares", key=mp.String, value=mp.Long)
    return TopologyTestDriver(builder.build(), {f"{kind}.exception.handler": "continue" for kind in HANDLED} | config)


HANDLED = ("deserialization", "processing")


def test_records_that_cannot_be_decoded_have_one_line_with_the_error_and_the_dead_letter_topic(lines: Any) -> None:
    """The first at once, the others at the end of the period or of the task."""
    with _shop({"errors.dead.letter.queue.topic.name": "orders-dead"}) as driver:
        orders = driver.create_input_topic("orders", key=mp.String, value=mp.Bytes)
        for _ in range(30):
            orders.pipe_input("ann", b"poison")
        assert len(lines()) == 1
    first, rest = lines()
    assert first.startswith("node 'KSTREAM-SOURCE-0000000000' could not decode a record at orders-0 offset 0: Long ")
    assert first.endswith(" buffer of 8 bytes; sent to 'orders-dead'.")
    assert "could not decode 29 records in the last 1 min: the first, at orders-0 offset 1: Long " in rest
    assert rest.endswith("; all are sent to 'orders-dead'.")


def test_each_cause_has_a_line_of_its_own(lines: Any) -> None:
    """Another node, another error, and another place in the user's code."""
    with _shop({"errors.dead.letter.queue.topic.name": "orders-dead"}) as driver:
        driver.create_input_topic("orders", key=mp.String, value=mp.Bytes).pipe_input("ann", b"poison")
        driver.create_input_topic("orders", key=mp.String, value=mp.Long).pipe_input("ann", 0)
    decoding, processing = lines()
    assert "could not decode a record" in decoding
    assert "could not process a record at orders-0 offset 1: ZeroDivisionError: " in processing
    assert "(test_drop_log.py, line " in processing


def test_a_record_without_a_copy_is_said_to_be_dropped(lines: Any) -> None:
    """The line names the setting that keeps a copy."""
    with _shop({}) as driver:
        driver.create_input_topic("orders", key=mp.String, value=mp.Bytes).pipe_input("ann", b"poison")
    assert lines()[0].endswith("; it is dropped ('errors.dead.letter.queue.topic.name' keeps a copy).")


def test_a_long_message_of_an_error_is_cut(lines: Any) -> None:
    """It is one line of the log, whatever the message has."""
    builder = mp.StreamsBuilder()

    def fail(value: int) -> int:
        raise ValueError("\n".join(["all of the record"] * 1_000))

    builder.stream("orders", key=mp.String, value=mp.Long).map_values(fail).to("shares", key=mp.String, value=mp.Long)
    with TopologyTestDriver(builder.build(), {"processing.exception.handler": "continue"}) as driver:
        driver.create_input_topic("orders", key=mp.String, value=mp.Long).pipe_input("ann", 1)
    assert len(lines()[0]) < 800
    assert "\n" not in lines()[0]
