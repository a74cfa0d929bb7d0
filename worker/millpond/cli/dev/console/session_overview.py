"""What a session with several workers does, from the coordinator's view and the states of its processes."""

from __future__ import annotations

import logging
import time

from millpond.cli.dev.status import SessionEventKind, SessionStatus, WorkerPhase, WorkerStatus
from millpond.cli.dev.worker import Launch
from millpond.console import WorkerFacts, figures_of, moves_of, tasks_of, topology_of, workers_of
from millpond.drawing import digest
from millpond.protocol import View
from millpond.protocol.overview import ApplicationOverview, ApplicationSummary, EventOverview

__all__ = ("session_overview",)

log: logging.Logger = logging.getLogger("millpond.cli")

_STATES = {
    WorkerPhase.STARTING: "starting",
    WorkerPhase.DRAINING: "draining",
    WorkerPhase.STOPPING: "draining",
    WorkerPhase.KILLED: "gone",
    WorkerPhase.FAILED: "gone",
    WorkerPhase.DOWN: "gone",
}
_NOTES = {WorkerPhase.PAUSED: "paused by SIGSTOP", WorkerPhase.KILLED: "killed", WorkerPhase.DOWN: "killed"}
_MAX_EVENTS = 50


def session_overview(status: SessionStatus, view: View, launch: Launch, started_at: float) -> ApplicationOverview:
    """Return everything about the session's application.

    Args:
        status: the status of the session.
        view: the coordinator's view.
        launch: the options of workers.
        started_at: the start of the session, in monotonic seconds.
    """
    tasks, topology = tasks_of(view), topology_of(view)
    figures = figures_of(tasks)
    now_ms = int(time.time() * 1000)
    began_ms = now_ms - int((time.monotonic() - started_at) * 1000)
    ran = {worker.worker for worker in status.workers}
    members = tuple(member for member in view.members if member.worker in ran or member.alive)
    up = sum(worker.phase is WorkerPhase.RUNNING for worker in status.workers)
    return ApplicationOverview(
        summary=ApplicationSummary(
            name=status.application,
            phase="Stopping" if status.stopping else "Running" if status.complete else "Starting",
            ready=status.complete and not status.stopping,
            message=status.coordinator_note,
            workers_ready=up,
            workers_wanted=status.wanted,
            tasks_running=figures.running,
            tasks_total=figures.total,
            records_per_second=figures.records_per_second,
            lag=figures.lag,
            lag_seconds=figures.lag_seconds,
        ),
        application_id=status.application,
        guarantee=launch.config.processing_guarantee,
        epoch=status.epoch,
        events=tuple(
            EventOverview(
                at_ms=began_ms + int(event.at_s * 1000),
                reason=_reason(event.kind),
                text=event.text,
                warning=event.kind is SessionEventKind.LOST,
            )
            for event in reversed(status.events[-_MAX_EVENTS:])
        ),
        workers=workers_of(
            View(view.application, view.epoch, members=members), {each.worker: _facts(each) for each in status.workers}
        ),
        tasks=tasks,
        moves=moves_of(view),
        topology=topology,
        drawing=digest(topology) if topology is not None else "",
        at_ms=now_ms,
    )


def _facts(worker: WorkerStatus) -> WorkerFacts:
    notes = (_NOTES.get(worker.phase, ""), worker.note)
    return WorkerFacts(state=_STATES.get(worker.phase, ""), trouble="; ".join(filter(None, notes)))


def _reason(kind: SessionEventKind) -> str:
    return {
        SessionEventKind.NOTE: "Session",
        SessionEventKind.COMPLETE: "AllTasksRun",
        SessionEventKind.LOST: "WorkerLost",
        SessionEventKind.REGAINED: "TasksRegained",
    }[kind]
