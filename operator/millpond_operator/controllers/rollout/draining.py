"""Workers that a person wants drained, by the annotation `millpond.dev/drain`: their tasks move to other workers.

Tasks that run matter more than the request: workers are drained only while another worker can take their tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .model import REQUEUE_SOON, Decision, RolloutState
from .scaling import is_empty, others_take_tasks
from .status import AppPhase, Draining, timestamp

__all__ = ("drain_requested", "listed")

_STOPPED = frozenset({AppPhase.SUSPENDING, AppPhase.SUSPENDED, AppPhase.DELETING})


def drain_requested(state: RolloutState, decision: Decision) -> Decision:
    """Return the decision with the requested workers drained, and with the request in its status.

    Args:
        state: the state of the decision.
        decision: the decision about everything else.
    """
    requested, before = state.wanted.drain, state.status.draining
    if decision.phase in _STOPPED or not state.wanted.replicas:
        state.update(draining=None)
        return replace(decision, status=state.status)
    if not requested:
        if before is not None:
            state.update(draining=None)
            if not before.message:
                state.record("DrainEnded", f"{listed(before.workers)} may get tasks again.")
        return replace(decision, status=state.status, events=tuple(state.events))
    message = _refusal(state, decision)
    pods = [pod for pod in state.observed.pods if pod.name in requested]
    workers = tuple(sorted(requested))
    busy = requested if message else {pod.name for pod in pods if not is_empty(state, pod)}
    same = before is not None and before.workers == workers
    since = before.since if before is not None and same else timestamp(state.now)
    draining = Draining(workers, since, tuple(each for each in workers if each not in busy), message)
    if draining != before:
        state.update(draining=draining)
        _record(state, before if same else None, draining)
    requeue = decision.requeue_after
    if not (draining.finished or message):
        requeue = min(requeue or REQUEUE_SOON, REQUEUE_SOON)
    return replace(
        decision,
        status=state.status,
        events=tuple(state.events),
        drain=decision.drain if message else decision.drain | requested,
        requeue_after=requeue,
    )


def _refusal(state: RolloutState, decision: Decision) -> str:
    """Return why no worker is drained now; "" if they are."""
    requested = state.wanted.drain
    if len(requested) >= state.wanted.replicas:
        return (
            f"The annotation millpond.dev/drain names all workers ({listed(requested)}), so none is drained: leave out "
            "at least one, or set spec.suspended to stop the application."
        )
    if not others_take_tasks(state, requested | decision.drain):
        return f"The drain of {listed(requested)} waits: no other worker can take tasks now."
    return ""


def _record(state: RolloutState, before: Draining | None, after: Draining) -> None:
    if after.message:
        if before is None or before.message != after.message:
            state.record("DrainRefused", after.message, "Warning")
    elif after.finished:
        state.record(
            "Drained",
            f"{listed(after.workers)} runs no task, and gets none until the annotation millpond.dev/drain is changed.",
        )
    elif before is None or before.message or before.finished:
        state.record(
            "Draining",
            f"Moving the tasks of {listed(after.workers)} to other workers, as the annotation millpond.dev/drain asks.",
        )


def listed(workers: Iterable[str]) -> str:
    """Return names of workers as text."""
    return ", ".join(sorted(workers))
