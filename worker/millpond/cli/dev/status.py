"""What there is to see of a session: the table in the terminal, `millpond dev status`, and tests are made from it."""

from __future__ import annotations

import enum

import msgspec

__all__ = ("Restoring", "SessionEvent", "SessionEventKind", "SessionStatus", "WorkerPhase", "WorkerStatus")


class WorkerPhase(enum.StrEnum):
    """What the session knows of a worker's process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    """Stopped by SIGSTOP: alive, and silent."""
    DRAINING = "draining"
    """Its tasks go to others; then it is stopped."""
    STOPPING = "stopping"
    KILLED = "killed"
    FAILED = "failed"
    """It ended by itself; it is started again after a while."""
    DOWN = "down"
    """Killed, and to stay so until `scale` wants it back."""


class Restoring(msgspec.Struct, frozen=True):
    """A store partition on its way to the end of its changelog."""

    store: str
    partition: int
    done: int
    """Records applied since the restore began."""
    total: int
    """What there was to apply."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: one row of the table."""

    worker: str
    phase: WorkerPhase
    pid: int = 0
    """0 while it has no process."""
    active: tuple[str, ...] = ()
    """Tasks it processes or is about to."""
    standby: tuple[str, ...] = ()
    warm_up: tuple[str, ...] = ()
    records_per_second: float | None = None
    processed: int = 0
    """Records since its process started."""
    commit_p99_ms: float | None = None
    """Of the last seconds, as exact as the buckets of its histogram."""
    lag: int | None = None
    """Records in its input partitions that it has not processed."""
    restoring: tuple[Restoring, ...] = ()
    restarts: int = 0
    note: str = ""
    """Why it is where it is: the error it ended with, or what it waits for."""
    log: str = ""
    """Path of its log."""
    metrics: str = ""
    """URL of its metrics."""


class SessionEventKind(enum.StrEnum):
    """What sort of event one is, for programs that wait for it."""

    NOTE = "note"
    COMPLETE = "complete"
    """Every task is being processed."""
    LOST = "lost"
    """A worker ended that had tasks."""
    REGAINED = "regained"
    """Its tasks are processed again."""


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened once."""

    number: int
    at_s: float
    """Seconds since the session began."""
    text: str
    kind: SessionEventKind = SessionEventKind.NOTE
    worker: str = ""
    """Whom it is about."""
    seconds: dict[str, float] = {}
    """Of `REGAINED`: how long after the worker's end each task was processed again."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A whole session."""

    application: str
    """`application.id`."""
    title: str
    guarantee: str
    bootstrap_servers: str
    directory: str
    """Where the logs are."""
    coordinator: str = ""
    """Its URL, empty while it is away."""
    coordinator_note: str = ""
    """Its last error, if that was lately."""
    epoch: str = ""
    """Of the assignment: term and number."""
    stopping: bool = False
    """Whether the session is on its way to its end."""
    wanted: int = 0
    """How many workers there should be."""
    workers: tuple[WorkerStatus, ...] = ()
    tasks: int = 0
    """Tasks of the application; 0 while unknown."""
    running: dict[str, str] = {}
    """Who processes each task that is being processed."""
    waiting: dict[str, str] = {}
    """Why a task is not where it should be, in words."""
    committed_s_ago: float | None = None
    """Since any worker committed; None before the first commit."""
    events: tuple[SessionEvent, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every task is being processed."""
        return 0 < self.tasks <= len(self.running)
