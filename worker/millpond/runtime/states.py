"""The worker's life as data: states, and which may follow which (after KafkaStreams.State)."""

from __future__ import annotations

import enum

__all__ = ("WorkerState", "may_follow")


class WorkerState(enum.Enum):
    """Where a worker is in its life."""

    CREATED = "created"
    STARTING = "starting"
    RESTORING = "restoring"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    ERROR = "error"


_S = WorkerState
_NEXT: dict[WorkerState, frozenset[WorkerState]] = {
    _S.CREATED: frozenset({_S.STARTING, _S.NOT_RUNNING}),
    _S.STARTING: frozenset({_S.RESTORING, _S.PENDING_SHUTDOWN, _S.ERROR}),
    _S.RESTORING: frozenset({_S.RUNNING, _S.STARTING, _S.PENDING_SHUTDOWN, _S.ERROR}),
    # A failed transaction sends a running worker back to where it reads what is committed.
    _S.RUNNING: frozenset({_S.STARTING, _S.PENDING_SHUTDOWN, _S.ERROR}),
    _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING, _S.ERROR}),
    _S.NOT_RUNNING: frozenset(),
    _S.ERROR: frozenset(),
}


def may_follow(state: WorkerState, following: WorkerState) -> bool:
    """Whether a worker in `state` may become `following`."""
    return following in _NEXT[state]
