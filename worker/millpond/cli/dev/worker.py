"""A worker of a session: what it is started with, and what is known of its process."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.runtime.config.model import Config

from .children import Child, ProcessLog
from .status import WorkerPhase

__all__ = ("Launch", "WorkerProcess")


@dataclass(frozen=True)
class Launch:
    """What workers are started with."""

    target: str
    """``MODULE:ATTRIBUTE``."""
    config: Config
    settings: Mapping[str, object]
    """Settings of the command line, by key."""
    file: Path | None
    """Settings in a file."""
    directory: Path
    """For logs and the coordinator's assignment."""
    verbose: bool = False

    def command(self, ordinal: int, coordinator_url: str) -> list[str]:
        """The command line of a worker."""
        mine: dict[str, object] = {**self.settings, "worker.id": f"w{ordinal}", "coordinator.url": coordinator_url}
        if self.config.http_port > 0:
            mine["http.port"] = self.config.http_port + ordinal  # one port cannot serve them all
        if self.config.query_port > 0:
            mine["query.port"] = self.config.query_port + ordinal
        return [
            *(sys.executable, "-m", "millpond.cli", "run", self.target),
            *([] if self.file is None else ["--config", str(self.file)]),
            *(["--verbose"] if self.verbose else []),
            *itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in mine.items()),
        ]


@dataclass
class WorkerProcess:
    """A worker, whether its process runs or not."""

    ordinal: int
    log: ProcessLog
    phase: WorkerPhase = WorkerPhase.STARTING
    child: Child | None = None
    note: str = ""
    restarts: int = -1
    wanted: bool = True
    """Whether its process is started again when it ends."""
    restart_after_s: float | None = None
    """Set by a kill: the pause before the next start."""
    failures: int = 0
    """Ends in a row that nobody asked for."""
    since: float = 0.0
    """When its process was started, monotonic."""
    keeper: asyncio.Task[None] | None = None
    drainer: asyncio.Task[None] | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end a pause before a restart."""

    @property
    def id(self) -> str:
        """Its `worker.id`."""
        return f"w{self.ordinal}"

    @property
    def leaving(self) -> bool:
        """Whether it is on its way out."""
        return self.phase in (WorkerPhase.DRAINING, WorkerPhase.DOWN) or (
            self.phase is WorkerPhase.STOPPING and not self.wanted
        )
