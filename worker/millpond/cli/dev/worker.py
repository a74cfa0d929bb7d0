"""A worker of a session: its command line, and the state of its process."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.runtime.config.model import Config

from .child_processes import Child, ProcessLog
from .status import WorkerPhase

__all__ = ("Launch", "WorkerProcess")


@dataclass(frozen=True)
class Launch:
    """The options of all workers."""

    target: str
    """``MODULE:ATTRIBUTE``."""
    config: Config
    settings: Mapping[str, object]
    """Settings of the command line, by key."""
    file: Path | None
    """The configuration file."""
    directory: Path
    """The directory of logs and the coordinator's assignment."""
    verbose: bool = False

    def command(self, ordinal: int, coordinator_url: str) -> list[str]:
        """Return the command line of a worker."""
        settings: dict[str, object] = {**self.settings, "worker.id": f"w{ordinal}", "coordinator.url": coordinator_url}
        if self.config.http_port > 0:
            settings["http.port"] = self.config.http_port + ordinal  # each worker needs its own port
        if self.config.query_port > 0:
            settings["query.port"] = self.config.query_port + ordinal
        return [
            *(sys.executable, "-m", "millpond.cli", "run", self.target),
            *([] if self.file is None else ["--config", str(self.file)]),
            *(["--verbose"] if self.verbose else []),
            *itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in settings.items()),
        ]


@dataclass
class WorkerProcess:
    """A worker and its process, if one runs."""

    ordinal: int
    log: ProcessLog
    phase: WorkerPhase = WorkerPhase.STARTING
    child: Child | None = None
    note: str = ""
    """Why it is in its phase; empty if there is nothing to explain."""
    restarts: int = -1
    """Starts of its process after the first; -1 before that."""
    wanted: bool = True
    """Whether its process is started again when it ends."""
    restart_after_s: float | None = None
    """The pause before the next start after a kill, in seconds; None if it was not killed."""
    failures: int = 0
    """Consecutive failures."""
    started_at: float = 0.0
    """When its process was started, in monotonic seconds."""
    keep_running: asyncio.Task[None] | None = None
    """Keeps its process running."""
    draining: asyncio.Task[None] | None = None
    """Drains it."""
    restart_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end the pause before a restart."""

    @property
    def id(self) -> str:
        """Its `worker.id`."""
        return f"w{self.ordinal}"

    @property
    def leaving(self) -> bool:
        """Whether it is stopping, or stopped for good."""
        return self.phase in (WorkerPhase.DRAINING, WorkerPhase.DOWN) or (
            self.phase is WorkerPhase.STOPPING and not self.wanted
        )
