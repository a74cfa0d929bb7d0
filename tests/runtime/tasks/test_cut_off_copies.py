"""The view that queries get of a copy without brokers: its age grows, and its lag is unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.protocol import Role
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.tasks import held_tasks as holdings
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka, Record
from tests.runtime.restoring.test_local_rows import CHANGELOG, A, _count, _table, _topology
from tests.runtime.worker_parts import Parts


@pytest.fixture
def kafka() -> Kafka:
    """A changelog with one row."""
    made = Kafka()
    made.logs[CHANGELOG] = [Record(b"a", _count(1), 1_000, stable=True)]
    return made


@pytest.fixture
def copy(kafka: Kafka, tmp_path: Path) -> Iterator[Parts]:
    """A worker with a copy that has read its changelog to the end."""
    made = Parts(kafka, _topology(), tmp_path, {"in": 1})
    made.executor.hold([A], Role.STANDBY)
    made.settle()
    yield made
    made.close()


def _look(copy: Parts) -> holdings.TaskView:
    """Run a turn of the loop, and return the view for queries."""
    copy.executor._copies._ends._next = copy.executor._copies._bounds._next = 0.0
    for _ in range(2):
        copy.executor.look_at_ends()
    copy.executor.measure_lags()
    return copy.executor.held[A].view()


def test_copy_at_the_end_is_as_old_as_the_last_answer(copy: Parts) -> None:
    """Each answer of a broker makes it younger."""
    before = time.monotonic()
    seen = _look(copy)
    assert seen.lag == 0
    assert seen.caught_up_at is not None
    assert seen.caught_up_at >= before


def test_copy_cut_off_from_brokers_grows_older(kafka: Kafka, copy: Parts) -> None:
    """It is at the last known end, but records may have been added since."""
    _look(copy)
    kafka.silent = True
    cut_off = time.monotonic()
    seen = _look(copy)
    assert seen.caught_up_at is not None
    assert seen.caught_up_at <= cut_off


def test_copy_behind_an_open_transaction_is_not_stale(kafka: Kafka, copy: Parts) -> None:
    """Queries must not see what is not committed."""
    kafka.logs[CHANGELOG].append(Record(b"a", _count(2), 1_000, stable=None))
    before = time.monotonic()
    seen = _look(copy)
    assert seen.caught_up_at is not None
    assert seen.caught_up_at >= before


def test_lag_without_an_answer_is_unknown(kafka: Kafka, copy: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be relative to an end that may have moved."""
    answered_at = _look(copy).caught_up_at
    assert answered_at is not None
    kafka.silent = True
    clock: Any = SimpleNamespace(now=answered_at, monotonic=lambda: clock.now)
    monkeypatch.setattr(holdings, "time", clock)
    assert _look(copy).lag == 0
    clock.now += holdings.LAG_KNOWN_S + 1
    assert copy.executor.held[A].view().lag is None


def test_copy_of_a_table_from_its_input_follows_the_commits(kafka: Kafka, tmp_path: Path) -> None:
    """It has what the active task has committed, and not more; its lag is known, so that the task can move to it."""
    source = Partition("table", 0)
    kafka.append("table", "k", "1")
    made = Parts(kafka, _table(), tmp_path / "table", {"table": 1})
    made.own(TaskId(0, 0))
    made.process()
    made.commit()
    made.executor.drop([A])
    made.executor.hold([A], Role.STANDBY)
    made.settle()
    (copied,) = made.executor.held[A].changelogs
    assert (copied.bounded, copied.position) == (True, 1)
    kafka.append("table", "k", "2")
    kafka.append("table", "k", "3")
    made.settle()
    before = time.monotonic()
    seen = _look(made)
    assert (copied.position, seen.lag) == (1, 0)
    assert seen.caught_up_at is not None
    assert seen.caught_up_at >= before

    kafka.commit(source, 2, kafka.committed(source).metadata)
    assert _look(made).lag == 1
    made.settle()
    assert (copied.position, _look(made).lag) == (2, 0)
    made.close()
