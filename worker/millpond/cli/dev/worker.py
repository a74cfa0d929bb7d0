"""A worker of a session: its command line, and the state of its process."""

from __future__ import annotations

import asyncio
import itertools
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.runtime.config.model import Config

from .child_processes import Child
from .process_log import ProcessLog
from .status import WorkerPhase

__all__ = ("STEADY_S", "Launch", "WorkerProcess", "can_listen")

STEADY_S = 10.0
"""A worker that ran for longer did not fail at its start."""


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

    def command(self, ordinal: int, coordinator_url: str, port: int = 0) -> list[str]:
        """Return the command line of a worker.

        Args:
            ordinal: the number of the worker.
            coordinator_url: the coordinator.
            port: the port on which the worker served before, so that clients find it again; 0 for a free one. It is
                used if `http.port` leaves the choice.
        """
        settings: dict[str, object] = {**self.settings, "worker.id": f"w{ordinal}", "coordinator.url": coordinator_url}
        if self.config.http_port > 0:
            settings["http.port"] = self.config.http_port + ordinal  # each worker needs its own port
        elif self.config.http_port == 0 and port and can_listen(self.config.http_host, port):
            settings["http.port"] = port
        if self.config.query_port > 0:
            settings["query.port"] = self.config.query_port + ordinal
        return [
            *(sys.executable, "-m", "millpond.cli", "run", self.target),
            *([] if self.file is None else ["--config", str(self.file)]),
            *(["--verbose"] if self.verbose else []),
            *itertools.chain.from_iterable(("--set", f"{key}={value}") for key, value in settings.items()),
        ]


def can_listen(host: str, port: int) -> bool:
    """Return whether a server can listen on a port: another process may have taken it meanwhile."""
    try:
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            return True
    except OSError:
        return False


@dataclass
class WorkerProcess:
    """A worker and its process, if one runs."""

    ordinal: int
    log: ProcessLog
    phase: WorkerPhase = WorkerPhase.STARTING
    child: Child | None = None
    note: str = ""
    """The reason for the phase; empty if the phase needs no explanation."""
    last_error: str = ""
    """The error with which its last process ended by itself; empty if it did not, or was killed."""
    restarts: int = -1
    """The number of restarts of the process; -1 before the first start."""
    wanted: bool = True
    """Whether the process is started again when it ends."""
    restart_after_s: float | None = None
    """The pause between a kill and the next start, in seconds; None if the worker was not killed."""
    failures: int = 0
    """The number of consecutive failures."""
    started_at: float = 0.0
    """The start of the process, in monotonic seconds."""
    keep_running: asyncio.Task[None] | None = None
    """The asyncio task that keeps the process running."""
    draining: asyncio.Task[None] | None = None
    """The asyncio task that drains the worker."""
    restart_now: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end the pause before a restart."""

    @property
    def id(self) -> str:
        """The `worker.id`."""
        return f"w{self.ordinal}"

    @property
    def steady(self) -> bool:
        """Whether it is unlikely to fail at once: its last process did not, or the present one has run for a while."""
        return not self.failures or (self.child is not None and time.monotonic() - self.started_at > STEADY_S)

    @property
    def shown_note(self) -> str:
        """What to show of it: of a worker that ends again and again also at its next try, until it has run for long."""
        return self.note or ("" if self.steady else self.last_error) or self.log.recent_error

    @property
    def leaving(self) -> bool:
        """Whether the worker is stopping, or is stopped permanently."""
        return self.phase in (WorkerPhase.DRAINING, WorkerPhase.DOWN) or (
            self.phase is WorkerPhase.STOPPING and not self.wanted
        )
