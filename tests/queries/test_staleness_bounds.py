"""Bounds of staleness and position, and uncommitted reads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.protocol import Role, TaskState
from millpond.queries import FailureReason, QueryFailed
from tests.queries.conftest import failure_of

SHORT = timedelta(seconds=1)
LONG = timedelta(seconds=30)


def count(value):
    return mp.ValueAndTimestamp(value, 1)


@pytest.fixture
def copied(start):
    """Start an application where `key` is 1 on a standby and 2 on its active task; return it and two workers.

    The first worker has the standby, the other one neither.
    """
    application = start(3, 3)
    partition = application.put("counts", "key", count(1))
    owner = application.owners[partition]
    standby, other = [each for each in application.workers if each is not owner]
    standby.follow(partition)
    application.put("counts", "key", count(2))
    application.standbys[partition] = (standby,)
    application.publish()
    return application, partition, standby, other


def reason_of(query):
    with pytest.raises(QueryFailed) as raised:
        query()
    return raised.value.reason


def test_copy_answers_only_stale_queries(copied):
    """Without a staleness bound only the active task answers, even if the asked worker has a copy."""
    application, _, standby, other = copied
    for worker in application.workers:
        assert application.client(worker).store("counts").get("key") == 2
    at_hand = application.client(standby).store("counts").lookup("key", max_staleness=timedelta(minutes=1))
    assert (at_hand.value, at_hand.worker, dict(at_hand.position)) == (1, standby.name, {})
    assert timedelta(0) <= at_hand.staleness < timedelta(minutes=1)
    # From elsewhere the active task is asked first.
    answer = application.client(other).store("counts").lookup("key", max_staleness=timedelta(minutes=1))
    assert (answer.value, answer.staleness) == (2, None)


def test_copy_answers_for_a_dead_owner(copied):
    """With stale reads allowed, queries are answered while there is no active task."""
    application, partition, standby, other = copied
    application.owners[partition].drop(partition)
    store = application.client(other).store("counts")
    answer = store.lookup("key", max_staleness=timedelta(minutes=1))
    assert (answer.value, answer.worker) == (1, standby.name)
    rows = store.all(max_lag=0)
    assert [(row.key, row.value) for row in rows] == [("key", 1)]
    assert rows.staleness is not None
    assert reason_of(lambda: store.get("key", timeout=SHORT)) is FailureReason.NOT_PRESENT


def test_a_copy_that_is_too_old_does_not_answer(copied):
    """Bounds of time, of lag, and both; a copy that was never caught up is never within a bound."""
    application, partition, standby, _ = copied
    application.owners[partition].drop(partition)
    store = application.client(standby).store("counts")
    standby.alter(partition, caught_up_at=time.monotonic() - 5, lag=40)
    minute = timedelta(minutes=1)
    assert store.get("key", max_staleness=timedelta(minutes=10)) == 1
    assert store.get("key", max_lag=40) == 1
    assert store.get("key", max_staleness=minute, max_lag=40) == 1

    def reasons(*bounds: dict[str, Any]) -> set[FailureReason]:
        """Why queries fail that wait for their deadline at the same time."""
        with ThreadPoolExecutor(len(bounds)) as threads:
            ask = lambda bound: reason_of(lambda: store.get("key", timeout=SHORT, **bound))
            return set(threads.map(ask, bounds))

    few = timedelta(seconds=4)
    assert reasons({"max_staleness": few}, {"max_lag": 39}, {"max_staleness": minute, "max_lag": 39}) == {
        FailureReason.NOT_UP_TO_BOUND
    }
    standby.alter(partition, caught_up_at=None, lag=None)
    assert reasons({"max_staleness": minute}, {"max_lag": 10**9}) == {FailureReason.NOT_UP_TO_BOUND}


def test_an_active_task_that_restores_is_a_copy_like_others(copied):
    """Before it processes, it answers within the bounds."""
    application, partition, _, _ = copied
    owner = application.owners[partition]
    owner.alter(partition, state=TaskState.RESTORING, caught_up_at=None, lag=3)
    store = application.client(owner, timeout=SHORT).store("counts")
    assert store.lookup("key", max_lag=3).worker == owner.name
    application.standbys.clear()
    application.publish()
    assert reason_of(lambda: store.get("key", max_lag=2)) is FailureReason.NOT_UP_TO_BOUND


def test_a_position_is_waited_for(copied):
    """Read your writes: the answer arrives after the commit with the write."""
    application, partition, standby, _ = copied
    store = application.client(standby, timeout=LONG).store("counts")
    bound = {f"in-{partition}": application.committed[partition] + 1}
    with ThreadPoolExecutor(2) as executor:
        waiting = executor.submit(store.lookup, "key", position=bound)
        waiting_rows = executor.submit(lambda: [row.value for row in store.all(position=bound)])
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        application.put("counts", "key", count(3), commit=False)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        application.put("counts", "other", count(4), commit=False)
        owner = application.owners[partition]
        owner.do(lambda: owner.commit(partition))
        answer = waiting.result(60)
        assert answer.value == 3
        assert answer.position[f"in-{partition}"] >= bound[f"in-{partition}"]
        assert 3 in waiting_rows.result(60)


def test_a_position_that_is_not_reached_fails_at_the_deadline(copied):
    """The failure has its reason, and both offsets in its message."""
    application, partition, _, other = copied
    store = application.client(other).store("counts")
    wanted = application.committed[partition] + 10
    failed = failure_of(lambda: store.get("key", position={f"in-{partition}": wanted}, timeout=SHORT))
    assert f"offset {wanted - 10} of in-{partition}, but {wanted}" in str(failed)
    assert failed.reason is FailureReason.NOT_UP_TO_BOUND
    # The position of an answer is reached by definition; other partitions' offsets are not this key's concern.
    answer = store.lookup("key")
    assert store.get("key", position={**answer.position, f"in-{(partition + 1) % 3}": 10**9}) == 2


def test_a_copy_cannot_prove_a_position(copied):
    """Whatever the staleness bound, only the active task can prove a position."""
    application, partition, standby, _ = copied
    store = application.client(standby).store("counts")
    bound = {f"in-{partition}": 1}
    answer = store.lookup("key", position=bound, max_staleness=timedelta(hours=1))
    assert (answer.value, answer.staleness) == (2, None)
    application.owners[partition].drop(partition)
    with pytest.raises(QueryFailed):
        store.get("key", position=bound, max_staleness=timedelta(hours=1), timeout=SHORT)


def test_position_of_an_unread_topic_is_rejected(copied):
    """It could never be proven, so it is not ignored."""
    application, _, _, other = copied
    with pytest.raises(QueryFailed, match="tasks of store 'counts' do not read topic 'elsewhere'") as raised:
        application.client(other).store("counts").get("key", position={"elsewhere-0": 1})
    assert raised.value.reason is FailureReason.BAD_REQUEST


def test_only_committed_rows_are_read_by_default(copied):
    """Uncommitted reads go to the active task, from every worker."""
    application, partition, standby, other = copied
    application.put("counts", "key", count(3), commit=False)
    for worker in (standby, other, application.owners[partition]):
        store = application.client(worker).store("counts")
        assert store.get("key") == 2
        assert store.get("key", isolation="read_uncommitted") == 3
        assert store.get("key", isolation="read_uncommitted", max_staleness=timedelta(hours=1)) == 3
    owner = application.owners[partition]
    held = owner.holdings()[mp.TaskId(0, partition)]
    owner.do(held.stores["counts"].revert)
    assert store.get("key", isolation="read_uncommitted") == 2


def test_stuck_loop_is_not_waited_for_beyond_the_deadline(copied):
    """Committed reads do not need the loop; uncommitted reads fail with the reason."""
    application, partition, _, _ = copied
    owner = application.owners[partition]
    store = application.client(owner, timeout=SHORT).store("counts")
    over = threading.Event()
    stuck = owner.call(lambda: over.wait(20))
    assert store.get("key") == 2
    with pytest.raises(QueryFailed, match=f"the loop of worker '{owner.name}' did not answer") as raised:
        store.get("key", isolation="read_uncommitted")
    assert raised.value.reason is FailureReason.NOT_ACTIVE
    over.set()
    assert stuck.result(60)


def test_warm_up_answers_like_a_standby(copied):
    """Its role does not matter, only its lag."""
    application, partition, standby, _ = copied
    standby.alter(partition, role=Role.WARM_UP)
    assert application.client(standby).store("counts").get("key", max_lag=0) == 1
