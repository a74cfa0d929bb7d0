"""The states of a worker and their valid transitions (as in `KafkaStreams.State`)."""

from __future__ import annotations

import enum

__all__ = ("WorkerState", "may_follow")


class WorkerState(enum.Enum):
    """The state of a worker."""

    CREATED = "created"
    STARTING = "starting"
    RESTORING = "restoring"
    RUNNING = "running"
    PENDING_SHUTDOWN = "pending_shutdown"
    NOT_RUNNING = "not_running"
    PENDING_ERROR = "pending_error"
    ERROR = "error"

    def is_running_or_rebalancing(self) -> bool:
        """Return whether the worker is started and not about to end. STARTING and RESTORING are REBALANCING there."""
        return self in (WorkerState.STARTING, WorkerState.RESTORING, WorkerState.RUNNING)

    def has_ended(self) -> bool:
        """Return whether the worker has ended: NOT_RUNNING or ERROR."""
        return self in (WorkerState.NOT_RUNNING, WorkerState.ERROR)


_S = WorkerState
_TRANSITIONS: dict[WorkerState, frozenset[WorkerState]] = {
    _S.CREATED: frozenset({_S.STARTING, _S.NOT_RUNNING, _S.ERROR}),
    _S.STARTING: frozenset({_S.RESTORING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR, _S.ERROR}),
    _S.RESTORING: frozenset({_S.RUNNING, _S.STARTING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR, _S.ERROR}),
    # After a failed transaction, a running worker starts again from the committed offsets.
    _S.RUNNING: frozenset({_S.STARTING, _S.PENDING_SHUTDOWN, _S.PENDING_ERROR, _S.ERROR}),
    _S.PENDING_SHUTDOWN: frozenset({_S.NOT_RUNNING, _S.PENDING_ERROR, _S.ERROR}),
    _S.PENDING_ERROR: frozenset({_S.ERROR}),
    _S.NOT_RUNNING: frozenset(),
    _S.ERROR: frozenset(),
}


def may_follow(state: WorkerState, following: WorkerState) -> bool:
    """Return whether `following` is a valid next state after `state`."""
    return following in _TRANSITIONS[state]
