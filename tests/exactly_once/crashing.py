"""Ends a worker's process at a chosen step of its work, like a kill -9 at that moment.

The steps are calls of the clients, of the state file and of the parts of a start; a step is named ``before CALL`` or
``after CALL``, and with a number it is that call's n-th time in the process; "after" counts calls that raise nothing.
millpond has no code for this: the calls of the runtime are wrapped from outside.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer

from millpond.runtime.commit.pipeline import Commit
from millpond.runtime.kafka import clients
from millpond.runtime.ownership import lookups as registrar
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.runtime.worker import startup
from millpond.runtime.worker.commit_scheduler import CommitScheduler
from millpond.state import StateFile

#: The exit code of a worker that ended at its step.
CRASHED = 77


def _any_call(*_args: Any, **_keywords: Any) -> bool:
    return True


def _has_rows(_scheduler: CommitScheduler, commit: Commit) -> bool:
    """Return whether a commit changes a store: one may have only offsets, past transaction markers for example."""
    return any(rows or rows.ranges for _, rows, _ in commit.rows)


def arm(step: str, occurrence: int) -> None:
    """End this process at the n-th time of a step."""
    when, _, call = step.partition(" ")
    before = when == "before"
    times = itertools.count(1)
    counts: Callable[..., bool] = _any_call

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def crashing(*args: Any, **keywords: Any) -> Any:
            counted = counts(*args, **keywords)
            if before and counted and next(times) == occurrence:
                os._exit(CRASHED)
            result = original(*args, **keywords)
            if not before and counted and next(times) == occurrence:
                os._exit(CRASHED)
            return result

        return crashing

    owner: Any
    match call.split("."):
        case ["producer", method]:
            owner = type("Producer", (Producer,), {})
            setattr(clients, "Producer", owner)
        case ["consumer", method]:
            owner = type("Consumer", (Consumer,), {})
            setattr(clients, "Consumer", owner)
        case ["state", method]:
            owner = StateFile
        case ["restore", method]:
            owner, method = ChangelogReader, f"_{method}"
        case ["tasks", method]:
            owner = TaskExecutor
        case ["worker", method]:
            owner = startup.Startup
        case ["committer", "completed"]:
            owner, method = CommitScheduler, "_completed"
        case ["committer", "completed_with_rows"]:
            owner, method, counts = CommitScheduler, "_completed", _has_rows
        case ["committer", method]:
            owner = CommitScheduler
        case ["start", method]:
            owner = startup  # it calls them by name
        case ["claims", method]:
            owner = registrar
        case _:
            raise ValueError(f"no such step: {step}")
    setattr(owner, method, wrapped(getattr(owner, method)))
