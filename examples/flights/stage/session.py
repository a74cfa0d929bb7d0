"""The workers of the demo: `millpond dev … --workers 3 --standbys 1` in a child process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from millpond.cli.dev.child_processes import ChildReaper
from millpond.cli.dev.remote import NoSession, Remote
from millpond.cli.dev.status import SessionStatus

__all__ = ("APPLICATION_ID", "DevSession", "SessionEnded")

APPLICATION_ID = "flights-demo"
_ROOT = Path(__file__).parents[3]
_STOP_TIMEOUT_S = 60.0
_LOG_LINES = 15


class SessionEnded(Exception):
    """The session ended unexpectedly."""


class DevSession:
    """Workers that share the application's tasks, and can be killed one by one.

    Args:
        bootstrap_servers: the broker.
        directory: for their state and logs.
        workers: the number of workers.
    """

    def __init__(self, bootstrap_servers: str, directory: Path, workers: int) -> None:
        self._log_file = directory / "session.log"
        paths = [str(_ROOT / root) for root in (".", "worker", "operator")]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "millpond.cli", "dev", "examples.flights.app:delays"),
                    *("--workers", str(workers), "--standbys", "1", "--processing-guarantee", "exactly_once"),
                    *("--application-id", APPLICATION_ID, "--bootstrap-servers", bootstrap_servers),
                    *("--data-dir", str(directory / "session"), "--state-dir", str(directory / "state")),
                    # Records are of 2013: the default retention of internal topics would delete them.
                    *("--set", "topic.retention.ms=-1"),
                ],
                cwd=directory,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # the demo handles Ctrl-C, and stops its workers
            )
        self._reaper = ChildReaper()  # if the demo is killed, its session is killed too
        self._reaper.watch(self._process.pid)
        self._remote: Remote | None = None

    def status(self) -> SessionStatus | None:
        """Return the status of its workers; None while it is starting.

        Raises:
            SessionEnded: it ended; the message has the last lines of its log.
        """
        if self._process.poll() is not None:
            raise SessionEnded(f"the workers ended with status {self._process.returncode}:\n{self.log_tail()}")
        with contextlib.suppress(NoSession):
            self._remote = self._remote or Remote.find(str(self._process.pid))
            return self._remote.status()
        return None

    def kill(self, worker: str) -> None:
        """Kill a worker by SIGKILL: it cannot commit, close RocksDB or leave. It is started again."""
        assert self._remote is not None
        self._remote.command("kill", worker=worker)

    def log_tail(self) -> str:
        """Return the last lines of its log."""
        text = self._log_file.read_text(errors="replace") if self._log_file.exists() else ""
        return "\n".join(text.splitlines()[-_LOG_LINES:])

    def stop(self) -> float:
        """Stop it by SIGTERM: the workers commit and end. Return the seconds that this took.

        Raises:
            SessionEnded: its exit status was not 0.
        """
        started_at = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        finally:
            self.end()
        if self._process.returncode != 0:
            raise SessionEnded(f"the workers ended with status {self._process.returncode}:\n{self.log_tail()}")
        return time.monotonic() - started_at

    def end(self) -> None:
        """End the session and its workers, whatever their state."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reaper.close()
