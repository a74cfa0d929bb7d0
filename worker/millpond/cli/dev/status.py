"""The status of a session: shown as a table in the terminal, and as JSON by `millpond dev status --json`."""

from __future__ import annotations

import enum

import msgspec

from millpond.protocol.overview import TaskOverview

__all__ = ("Restoring", "SessionEvent", "SessionEventKind", "SessionStatus", "WorkerPhase", "WorkerStatus")


class WorkerPhase(enum.StrEnum):
    """The phase of a worker's process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    """Stopped by SIGSTOP: the worker is alive, but does not respond."""
    DRAINING = "draining"
    """The worker's tasks move to other workers; then the worker is stopped."""
    STOPPING = "stopping"
    KILLED = "killed"
    FAILED = "failed"
    """The process ended by itself, and is started again after a pause."""
    DOWN = "down"
    """Killed, and not started again until `scale` needs the worker."""


class Restoring(msgspec.Struct, frozen=True):
    """The restore progress of a store partition."""

    store: str
    partition: int
    done: int
    """Records restored."""
    total: int
    """Records to restore in all."""


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: one row of the table."""

    worker: str
    phase: WorkerPhase
    pid: int = 0
    """Process id; 0 while it has no process."""
    active: tuple[str, ...] = ()
    """Active tasks, running or being restored."""
    standby: tuple[str, ...] = ()
    warm_up: tuple[str, ...] = ()
    records_per_second: float | None = None
    processed: int = 0
    """Records since its process started."""
    dropped: int = 0
    """Records that its tasks dropped, such as late ones, over all its processes."""
    dead_letters: int = 0
    """Those of them that were sent to a dead-letter topic, and others that a handler sent there."""
    commit_p99_ms: float | None = None
    """The 99th percentile of commits in the last seconds, in milliseconds, interpolated from histogram buckets."""
    lag: int | None = None
    """Records in its input partitions that it has not processed."""
    restoring: tuple[Restoring, ...] = ()
    restarts: int = 0
    note: str = ""
    """The reason for the phase: the error of the last end, or the thing that the worker waits for."""
    log: str = ""
    """The path of its log."""
    metrics: str = ""
    """The URL of its metrics."""
    queries: str = ""
    """The URL at which it answers queries; empty while it does not."""


class SessionEventKind(enum.StrEnum):
    """The kind of an event, for programs that wait for it."""

    NOTE = "note"
    COMPLETE = "complete"
    """Every task is being processed."""
    LOST = "lost"
    """A worker with tasks died."""
    REGAINED = "regained"
    """All its tasks are being processed again."""


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a session."""

    number: int
    at_s: float
    """Seconds since the session started."""
    text: str
    kind: SessionEventKind = SessionEventKind.NOTE
    worker: str = ""
    """The worker concerned; empty if it concerns none."""
    seconds: dict[str, float] = {}
    """Of `REGAINED`: for each task, the seconds from the worker's death until it was processed again."""


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a session."""

    application: str
    """`application.id`."""
    title: str
    guarantee: str
    bootstrap_servers: str
    directory: str
    """The directory of the logs."""
    state_dir: str = ""
    """The directory of the workers' local state."""
    target: str = ""
    """The application, as ``MODULE:ATTRIBUTE``."""
    dead_letter_topic: str = ""
    """The configured dead-letter topic; empty without one."""
    console: str = ""
    """The URL of the console."""
    coordinator: str = ""
    """The coordinator's URL; empty while it does not run."""
    coordinator_note: str = ""
    """The coordinator's last error, if it is recent."""
    epoch: str = ""
    """The epoch of the assignment: term and number."""
    in_process: bool = False
    """Whether the session's own process runs its only worker, without a coordinator and without log files."""
    stopping: bool = False
    """Whether the session is stopping."""
    wanted: int = 0
    """The number of workers that should run."""
    usual: int = 1
    """The latest such number that was not 0: that which a session without workers starts again."""
    workers: tuple[WorkerStatus, ...] = ()
    dead_letters: int = 0
    """About those of all workers since the last start of all of them, also of workers that are gone.

    Those of aborted transactions count, and those that a killed worker sent after its last scrape do not.
    """
    tasks: int = 0
    """The number of tasks of the application; 0 while it is not known."""
    running: dict[str, str] = {}
    """Tasks that are being processed, and their worker."""
    details: tuple[TaskOverview, ...] = ()
    """All tasks, with the owner, the rate and the lag of each."""
    waiting: dict[str, str] = {}
    """Tasks that wait for a worker or for a move, and why."""
    committed_s_ago: float | None = None
    """Seconds since the latest commit of any worker; None before the first commit."""
    warnings: tuple[str, ...] = ()
    """What the workers warn of since the last start of all of them, such as a store that was renamed."""
    events: tuple[SessionEvent, ...] = ()

    @property
    def queries(self) -> tuple[str, ...]:
        """The URLs for queries, of which each answers for all workers; empty while no worker does."""
        return tuple(each.queries for each in self.workers if each.queries and each.pid)

    @property
    def complete(self) -> bool:
        """Whether every task is being processed."""
        return 0 < self.tasks <= len(self.running)
