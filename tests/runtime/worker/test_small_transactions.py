"""The loop processes no more records than the next transaction may have, and its tasks take turns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.runtime.commit.pipeline import CommitPhase
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.worker.loop import Loop


class _Task:
    """A task with an endless input.

    Attributes:
        done: the number of processed records.
    """

    cut_short = False

    def __init__(self) -> None:
        self.done = 0

    def process(self, limit: int, _now_ms: int) -> int:
        self.done += limit
        return limit

    def punctuate(self, _now_ms: int) -> None:
        pass


class _Worker:
    """A loop with three tasks, and commits that the test begins and ends."""

    def __init__(self) -> None:
        self.tasks = [_Task() for _ in range(3)]
        self.size = TransactionSize(10.0)
        nothing: Any = SimpleNamespace(processed=lambda *_: None, processed_task=lambda *_: None, slow=False)
        self.committer = SimpleNamespace(
            phase=CommitPhase.IDLE, next_commit=9.0, needed=lambda: True, processed=self.size.processed
        )
        self.parts: Any = SimpleNamespace(
            new_plan=None,
            transactions=self.size,
            committer=self.committer,
            executor=SimpleNamespace(running=self.tasks, balance=lambda: None),
            assembly=SimpleNamespace(environment=SimpleNamespace(now_ms=lambda: 0)),
            controls=SimpleNamespace(paused=False),
            pace=nothing,
            metrics=nothing,
            garbage=nothing,
            collector=SimpleNamespace(in_transaction=False),
        )
        unused: Any = None
        polling: Any = SimpleNamespace(limit=1_000)
        self.loop = Loop(self.parts, polling, unused, unused)

    def turn(self) -> int:
        """Process as the loop does; return how many records."""
        before = sum(task.done for task in self.tasks)
        if not self.loop._awaits_commit():
            self.loop._process()
        return sum(task.done for task in self.tasks) - before


@pytest.fixture
def worker() -> _Worker:
    """A worker without a limit."""
    return _Worker()


def test_without_a_limit_each_task_processes_what_it_has(worker: _Worker) -> None:
    """The usual turn."""
    assert worker.turn() == 3_000
    assert worker.committer.next_commit == 9.0


def test_a_full_transaction_is_committed_before_more_is_processed(worker: _Worker) -> None:
    """At once, and not after the commit interval. Beside its commit, the next transaction may be filled."""
    worker.size.limit = 1_500
    assert worker.turn() == 1_500
    assert worker.parts.behind
    assert worker.turn() == 0
    assert worker.committer.next_commit == 0.0
    worker.size.commit_begun()
    worker.committer.phase = CommitPhase.COMMITTING
    assert worker.turn() == 1_500
    assert worker.turn() == 0


def test_tasks_take_turns_in_transactions_of_one_record(worker: _Worker) -> None:
    """None of them waits until the others have no more records."""
    worker.size.limit = 1
    for _ in range(9):
        assert worker.turn() == 1
        worker.size.commit_begun()
    assert [task.done for task in worker.tasks] == [3, 3, 3]
