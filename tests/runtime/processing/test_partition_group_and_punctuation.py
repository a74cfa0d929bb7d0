"""The next record of a task, when a task waits, and when punctuators fire."""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.runtime.processing.partition_group import PartitionGroup
from millpond.runtime.processing.punctuation import PunctuationQueue, WallClockQueue
from tests.runtime.running import Running, run_until
from tests.support import kafka


class Queue:
    """A record queue with one chunk per record, as far as the group needs it."""

    def __init__(self):
        self.chunks = deque()
        self.at_end = False
        self.idle_since_ms = None

    def head_timestamp(self):
        """The timestamp of the next record."""
        return self.chunks[0]


@pytest.mark.parametrize("idle", [0, 100])
def test_clock_set_back_does_not_prolong_the_idle_wait(idle):
    """A clock that was an hour ahead and is set back causes no wait of an hour."""
    one, other = Queue(), Queue()
    group = PartitionGroup([one, other], idle)
    one.at_end = other.at_end = True
    group.ready(3_600_000)
    one.chunks.append(0)
    group.ready(5)
    assert group.ready(5 + idle)


TIMES = st.integers(0, 50)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.lists(TIMES, min_size=1, max_size=4)),
        st.tuples(st.just("end"), st.integers(0, 2)),
        st.tuples(st.just("wait"), st.integers(0, 40)),
        st.tuples(st.just("take")),
    ),
    max_size=60,
)


@given(steps=STEPS, partitions=st.integers(1, 3), idle=st.sampled_from([-1, 0, 1, 15, 10_000]))
def test_task_chooses_records_by_kip_353_and_kip_695(steps, partitions, idle):
    """Compared with a model: whether to take a record, from which queue, how many, and what is enforced."""
    queues = [Queue() for _ in range(partitions)]
    group = PartitionGroup(queues, idle)
    deadline = [None] * partitions
    now = enforced = 0

    def model():
        if partitions == 1 or idle < 0:
            return any(queue.chunks for queue in queues), False
        waiting = expired = False
        for number, queue in enumerate(queues):
            if queue.chunks:
                deadline[number] = None
            elif not queue.at_end:
                waiting = True
            else:
                if deadline[number] is None:
                    deadline[number] = now + idle
                if now < deadline[number]:
                    waiting = True
                else:
                    expired = True
        ready = any(queue.chunks for queue in queues) and not waiting
        return ready, ready and expired

    for kind, *arguments in steps:
        if kind == "add":
            number, times = arguments
            queue = queues[number % partitions]
            queue.chunks.extend(times)
            queue.at_end = False
        elif kind == "end":
            queue = queues[arguments[0] % partitions]
            queue.at_end = not queue.chunks
        elif kind == "wait":
            now += arguments[0]
        else:
            wanted, counts = model()
            assert group.ready(now) == wanted
            enforced += counts
            assert group.enforced == enforced
            if wanted:
                queue, bound = group.next()
                heads = sorted(each.head_timestamp() for each in queues if each.chunks)
                assert queue.head_timestamp() == heads[0]
                others = [each.head_timestamp() for each in queues if each.chunks and each is not queue]
                assert bound == min(others, default=None)
                queue.chunks.popleft()


def test_punctuators_that_are_due_at_the_same_time_fire_in_the_order_of_the_original():
    """That of Java's heap: the last schedule takes the place of the first one while that fires."""
    queue = PunctuationQueue()
    fired: list[str] = []
    for name in "abcde":
        queue.schedule(0, 10, lambda _now, name=name: fired.append(name))
    queue.fire(0)
    queue.fire(25)
    assert "".join(fired) == "aebdc" + "dceab"


@given(
    interval=st.integers(1, 50),
    steps=st.lists(st.integers(0, 200), min_size=1, max_size=40),
)
def test_stream_time_punctuators_fire_once_per_step(interval, steps):
    """Aligned to zero, first as soon as stream time is known, and once per step however many intervals it skips."""
    fired = []
    queue = PunctuationQueue()
    queue.schedule(0, interval, fired.append)
    expected, due, now = [], 0, 0
    for step in steps:
        now += step
        queue.fire(now)
        if now >= due:
            expected.append(now)
            due = (now // interval + 1) * interval
        assert fired == expected
        assert queue.next_due() == due


@given(
    schedules=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=5),
    cancel=st.sets(st.integers(0, 4)),
    steps=st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
def test_punctuators_are_independent_and_cancelled_ones_are_silent(schedules, cancel, steps):
    """Each schedule keeps its own alignment; one that cancels itself at its first firing fires once."""
    fired = [[] for _ in schedules]
    queue = PunctuationQueue()
    handles = []

    def punctuator(number):
        def fire(now):
            fired[number].append(now)
            if number in cancel:
                handles[number].cancel()

        return fire

    for number, (first, interval) in enumerate(schedules):
        handles.append(queue.schedule(first, interval, punctuator(number)))
    due = [first for first, _ in schedules]
    expected = [[] for _ in schedules]
    now = 0
    for step in steps:
        now += step
        queue.fire(now)
        for number, (_, interval) in enumerate(schedules):
            if due[number] is not None and now >= due[number]:
                expected[number].append(now)
                missed = (now - due[number]) // interval
                due[number] = None if number in cancel else due[number] + (missed + 1) * interval
    assert fired == expected


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=20))
def test_wall_clock_punctuators_first_fire_one_interval_from_now(waits):
    """In a whole topology: first after one interval, and once per advance that reaches the next one."""
    fired = []

    class Ticker(mp.Processor):
        def init(self, context):
            super().init(context)
            context.schedule(timedelta(seconds=1), mp.PunctuationType.WALL_CLOCK_TIME, fired.append)

        def process(self, record):
            pass

    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).process(Ticker)
    start = 100
    with mp.testing.TopologyTestDriver(builder.build(), initial_wall_clock=start) as driver:
        now, due, expected = start, start + 1_000, []
        for wait in waits:
            driver.advance_wall_clock_time(timedelta(milliseconds=wait))
            now += wait
            if now >= due:
                expected.append(now)
                due += ((now - due) // 1_000 + 1) * 1_000
        assert fired == expected


def _merged(left, right, target):
    builder = mp.StreamsBuilder()
    first = builder.stream(left, key=mp.String, value=mp.String)
    first.merge(builder.stream(right, key=mp.String, value=mp.String)).to(target)
    return builder.build()


def test_two_inputs_are_processed_in_the_order_of_their_timestamps(broker, create_topic, app_id, tmp_path):
    """If both partitions have data, records are processed in timestamp order, in whatever order they arrive."""
    servers = broker.bootstrap_servers
    left, right, target = create_topic("left"), create_topic("right"), create_topic("out")
    count = 6_000  # timestamps begin with 2: the client takes 0 for "now"
    kafka.produce(servers, left, [("l", "v", each * 2 + 2) for each in range(count)])
    kafka.produce(servers, right, [("r", "v" * 200, each * 2 + 3) for each in range(count)])
    settings = {"buffered.records.per.partition": 100}
    rows = run_until(_merged(left, right, target), servers, app_id, tmp_path, target, 2 * count, settings)
    assert [row.timestamp for row in rows] == list(range(2, 2 * count + 2))


def test_empty_input_is_waited_for_then_passed_over(broker, create_topic, app_id, tmp_path):
    """Processing is enforced after `max.task.idle.ms`, not before, and the metric counts it."""
    servers = broker.bootstrap_servers
    left, right, target = create_topic("left"), create_topic("right"), create_topic("out")
    kafka.produce(servers, left, [("l", "v", each + 1) for each in range(10)])
    with Running(_merged(left, right, target), servers, app_id, tmp_path, {"max.task.idle.ms": 3_000}) as running:
        running.wait_running()
        running.wait(
            lambda: any(task.group.buffered() == 10 for task in running.worker._parts.executor.running),
            "records are read",
        )
        (task,) = running.worker._parts.executor.running
        assert task.processed == 0
        assert task.group.enforced == 0
        running.wait(lambda: len(kafka.read(servers, target)) == 10, "the task goes on without the empty input")
        assert task.group.enforced >= 1


def test_input_far_ahead_is_not_buffered_without_bound(broker, create_topic, app_id, tmp_path):
    """The buffer stays near its limit while the other input is empty. Once that has data, everything is processed."""
    servers = broker.bootstrap_servers
    left, right, target = create_topic("left"), create_topic("right"), create_topic("out")
    count, limit, poll = 30_000, 200, 2_000
    kafka.produce(servers, left, [("l", "v" * 50, each + 1) for each in range(count)])
    settings = {"max.task.idle.ms": 600_000, "buffered.records.per.partition": limit}
    with Running(_merged(left, right, target), servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        running.wait(
            lambda: any(task.group.buffered() > limit for task in running.worker._parts.executor.running),
            "the buffer is full",
        )
        (task,) = running.worker._parts.executor.running
        seen = []

        def turns_passed():
            seen.append(task.group.buffered())
            return len(seen) > 30

        running.wait(turns_passed, "the loop turns for a while")
        assert max(seen) <= limit + poll
        assert task.processed == 0
        last = count + 1
        kafka.produce(servers, right, [("r", "v", last)])
        running.wait(lambda: task.processed >= count, "the input that was left alone is read on")
        assert len(kafka.read_until(servers, target, count)) == count


@given(
    intervals=st.lists(st.integers(1, 50), min_size=1, max_size=5),
    steps=st.lists(st.integers(0, 30), min_size=1, max_size=20),
    back=st.integers(1, 10**8),
)
def test_wall_clock_punctuators_go_on_when_the_clock_is_set_back(intervals, steps, back):
    """As many fire as with a clock that was not set back, in the same order, after the same waits."""
    fired: dict[int, list[int]] = {0: [], back: []}
    for shift, seen in fired.items():
        queue, now = WallClockQueue(), 10**9
        for number, interval in enumerate(intervals):
            queue.schedule(now + interval, interval, lambda _now, number=number, seen=seen: seen.append(number))
        queue.fire(now)
        now -= shift
        queue.fire(now)
        for step in steps:
            now += step
            queue.fire(now)
    assert fired[0] == fired[back]


@given(
    start=st.integers(0, 300),
    interval=st.integers(1, 50),
    now=st.integers(-1, 300),
    steps=st.lists(st.integers(0, 90), max_size=20),
)
def test_punctuators_with_a_start_fire_at_its_times(start, interval, now, steps):
    """Those at which the clock is not past when they are made; once for all that a step skips."""
    fired, expected = [], []
    queue = WallClockQueue()
    queue.schedule_from(start, interval, now, fired.append)
    times = [time for time in range(start, 3_000, interval) if time > now or time == start == now]
    for step in [0, *steps]:
        now += step
        queue.fire(now)
        passed = [time for time in times if time <= now]
        times = times[len(passed) :]
        expected += [now] if passed else []
        assert fired == expected
        assert queue.next_due() == times[0]


@given(start=st.integers(0, 300), interval=st.integers(1, 50), at=st.integers(-1, 300))
def test_punctuators_with_a_start_continue_after_the_committed_stream_time(start, interval, at):
    """Up to it, they were called before the restart."""
    queue = PunctuationQueue()
    queue.schedule_from(start, interval, -1, print)
    queue.resume(at)
    assert queue.next_due() == next(time for time in range(start, 1_000, interval) if time > at)


@given(
    intervals=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    steps=st.lists(st.integers(-60, 60), min_size=1, max_size=30),
)
def test_punctuators_with_a_start_stay_at_its_times_when_the_clock_is_set_back(intervals, steps):
    """None comes to one a second time, unless the clock is set back by more than its interval; others go on beside."""
    fired: dict[int, list[int]] = {number: [] for number in range(len(intervals))}
    others: list[int] = []
    queue, now = WallClockQueue(), 10_000
    for number, interval in enumerate(intervals):
        queue.schedule_from(0, interval, now, fired[number].append)
        queue.schedule(now + interval, interval, others.append)
    queue.fire(now)
    last = {number: now // interval for number, interval in enumerate(intervals)}
    lived = 0
    for step in steps:
        now += step
        lived += max(0, step)
        for number, interval in enumerate(intervals):
            if -step > interval:
                last[number] = now // interval
        before = {number: len(each) for number, each in fired.items()}
        queue.fire(now)
        for number, interval in enumerate(intervals):
            due = now // interval > last[number]
            assert len(fired[number]) - before[number] == due
            last[number] = max(last[number], now // interval)
    assert bool(others) == (lived >= min(intervals))
