"""The work queue: each key once at a time, none is lost, and failures back off."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta

import pytest

from millpond_operator.controllers.process.metrics import OperatorMetrics
from millpond_operator.controllers.process.work_queue import WorkQueue
from millpond_operator.kubernetes import LeadershipLost, TooManyRequests
from tests.kubernetes.support import until
from tests.simulation.running import simulate

SHORT = timedelta(milliseconds=5)
LONG = timedelta(minutes=10)


def test_keys_come_in_order_and_once() -> None:
    """A key that is added while it waits is handled once."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in "abac":
            queue.add(key)
        assert len(queue) == 3
        assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]

    simulate(scenario())


def test_key_added_while_processed_is_requeued() -> None:
    """A key in progress is not handed out again; if it was added meanwhile, it is ready afterwards."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0
        assert not queue.idle
        queue.done("a")
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.idle

    simulate(scenario())


def test_a_key_for_later_comes_when_it_is_due() -> None:
    """The earliest of several times counts, and a later request does not delay it."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", LONG)
        queue.add_after("a", SHORT)
        queue.add_after("a", LONG)
        queue.add_after("b", timedelta(0))
        assert queue.waiting == 1
        assert [await queue.get(), await queue.get()] == ["b", "a"]
        assert queue.waiting == 0

    simulate(scenario())


def test_changes_come_before_periodic_checks_which_are_not_forgotten() -> None:
    """A user's change waits for a few checks at most; under constant changes every fourth key is a check."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        checks = [f"check-{number}" for number in range(1000)]
        for key in checks:
            queue.add_after(key, timedelta(minutes=1))
        await asyncio.sleep(61)
        assert len(queue) == 1000
        queue.add("change")
        assert "change" in [await queue.get() for _ in range(2)]
        for number in range(1000):
            queue.add(f"change-{number}")
        taken = [await queue.get() for _ in range(400)]
        assert sum(key in checks for key in taken) == 100
        assert [key for key in taken if key in checks] == checks[1:101]

    simulate(scenario())


def test_a_change_of_a_key_whose_check_waits_comes_first() -> None:
    """The key is handled once, and at its earlier place."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for key in "abcd":
            queue.add_after(key, timedelta(minutes=1))
        await asyncio.sleep(61)
        queue.add("d")
        assert [await queue.get() for _ in range(4)] == ["d", "a", "b", "c"]
        assert len(queue) == 0

    simulate(scenario())


def test_failures_wait_longer_each_time() -> None:
    """The back-off doubles with jitter up to a limit, and starts over after a success."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(
            first_backoff=timedelta(seconds=1), longest_backoff=timedelta(seconds=20), clock=lambda: 0.0
        )
        waits = [queue.add_rate_limited("a").total_seconds() for _ in range(40)]
        for wait, full in zip(waits, [1, 2, 4, 8, 16, *[20] * 35], strict=True):
            assert full / 2 <= wait <= full
        assert queue.failures("a") == 40
        queue.forget("a")
        assert queue.add_rate_limited("a").total_seconds() <= 1
        assert queue.add_rate_limited("a", timedelta(seconds=30)).total_seconds() == 30

    simulate(scenario())


def test_workers_share_the_keys() -> None:
    """Several workers handle several keys concurrently, and never two the same key."""

    async def scenario() -> None:
        queue: WorkQueue[int] = WorkQueue()
        under_way: Counter[int] = Counter()
        worked: Counter[int] = Counter()
        most = 0

        async def handle(key: int) -> None:
            nonlocal most
            under_way[key] += 1
            assert under_way[key] == 1
            most = max(most, under_way.total())
            await asyncio.sleep(0)
            if worked[key] < 3:
                queue.add(key)
            await asyncio.sleep(0)
            under_way[key] -= 1
            worked[key] += 1

        task = asyncio.create_task(queue.run(handle, workers=4))
        for key in range(20):
            queue.add(key)
        await until(lambda: queue.idle, "all is done")
        assert set(worked.values()) == {4}
        assert most == 4
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    simulate(scenario())


def test_failed_key_is_retried_beside_others() -> None:
    """Expected and unexpected errors are retried alike."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue(first_backoff=SHORT)
        tries: Counter[str] = Counter()

        async def handle(key: str) -> None:
            tries[key] += 1
            if key == "busy" and tries[key] < 3:
                raise TooManyRequests("The API server is busy.", 429)
            if key == "broken" and tries[key] < 3:
                raise ZeroDivisionError

        task = asyncio.create_task(queue.run(handle, workers=1))
        for key in ("busy", "broken", "fine"):
            queue.add(key)
        await until(lambda: queue.idle and not queue.waiting, "all succeeded")
        assert tries == {"busy": 3, "broken": 3, "fine": 1}
        assert queue.failures("busy") == 0
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    simulate(scenario())


def test_retry_after_delays_the_key() -> None:
    """A key waits as long as the API server asked, even if its back-off is shorter."""

    async def scenario() -> None:
        now = 0.0
        queue: WorkQueue[str] = WorkQueue(first_backoff=SHORT, clock=lambda: now)

        async def handle(key: str) -> None:
            raise TooManyRequests("Later.", 429, retry_after=30.0)

        task = asyncio.create_task(queue.run(handle))
        queue.add("a")
        await until(lambda: queue.waiting, "it waits")
        assert queue._due["a"] == 30.0
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    simulate(scenario())


def test_a_handler_may_ask_to_be_called_again() -> None:
    """A handler returns after which time its key is handled again."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        calls = 0

        async def handle(key: str) -> timedelta | None:
            nonlocal calls
            calls += 1
            return SHORT if calls < 3 else None

        task = asyncio.create_task(queue.run(handle))
        queue.add("a")
        await until(lambda: calls == 3 and queue.idle, "it was called three times")
        assert queue.waiting == 0
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    simulate(scenario())


def test_lost_leadership_ends_the_work() -> None:
    """A handler that learns of lost leadership ends the queue, and no other key is handled."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()

        async def handle(key: str) -> None:
            if key == "lost":
                raise LeadershipLost("Another one leads.")
            await asyncio.Event().wait()

        queue.add("waits")
        queue.add("lost")
        with pytest.raises(LeadershipLost):
            await queue.run(handle, workers=2)

    simulate(scenario())


def test_a_cancelled_taker_passes_its_turn_on() -> None:
    """A key is not lost when its taker is cancelled at that moment."""

    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await second == "a"
        with pytest.raises(asyncio.CancelledError):
            await first

    simulate(scenario())


def test_metrics_show_depth_and_waits() -> None:
    """The queue's metrics have the names and labels of controller-runtime."""

    async def scenario() -> None:
        metrics = OperatorMetrics()
        figures = metrics.of_queue("streamapp")
        now = 100.0
        queue: WorkQueue[str] = WorkQueue("streamapp", metrics=figures, clock=lambda: now)
        figures.watch(queue)
        for key in "abc":
            queue.add(key)
        now = 103.0
        await queue.get()
        now = 105.0
        text = metrics.exposed().decode()
        assert 'workqueue_depth{name="streamapp"} 2.0' in text
        assert 'workqueue_adds_total{name="streamapp"} 3.0' in text
        assert 'workqueue_queue_duration_seconds_sum{name="streamapp"} 3.0' in text
        assert 'workqueue_unfinished_work_seconds{name="streamapp"} 2.0' in text
        assert 'workqueue_longest_running_processor_seconds{name="streamapp"} 2.0' in text
        longest = queue.longest()
        assert longest == ("a", timedelta(seconds=2))
        queue.done("a")
        queue.add_rate_limited("a")
        text = metrics.exposed().decode()
        assert 'workqueue_work_duration_seconds_sum{name="streamapp"} 2.0' in text
        assert 'workqueue_retries_total{name="streamapp"} 1.0' in text

    simulate(scenario())
