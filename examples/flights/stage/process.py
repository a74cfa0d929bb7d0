"""The worker as a process of its own: `millpond run`, as anybody would start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ("APPLICATION_ID", "WorkerEnded", "WorkerProcess")

APPLICATION_ID = "flights-demo"
_ROOT = Path(__file__).parents[3]
_STOP_S = 60.0
_LOG_LINES = 15


class WorkerEnded(Exception):
    """The worker ended by itself, which it should not."""


class WorkerProcess:
    """A worker that can be started, killed, started again, and stopped.

    Args:
        bootstrap_servers: the broker.
        directory: for its state and its log; the state outlives the process.
    """

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "millpond.cli", "run", "examples.flights.app:delays"),
            *("--application-id", APPLICATION_ID, "--bootstrap-servers", bootstrap_servers),
            *("--processing-guarantee", "exactly_once", "--worker-id", "demo"),
            *("--state-dir", str(directory / "state")),
            # The year is long gone: internal topics that keep records for a day would keep none of these.
            *("--set", "topic.retention.ms=-1"),
        ]
        self.log_file = directory / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        """Its process id, 0 while it does not run."""
        return 0 if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it; returns at once."""
        paths = [str(_ROOT), str(_ROOT / "worker"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._log_start = len(self._log())
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.log_file.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its worker
            )

    def check(self) -> None:
        """Raise `WorkerEnded` when it is no longer there, with the end of its log."""
        if self._process is not None and self._process.poll() is not None:
            raise WorkerEnded(f"the worker ended with status {self._process.returncode}:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last lines of its log."""
        return "\n".join(self._log().splitlines()[-_LOG_LINES:])

    def kill(self) -> None:
        """SIGKILL: no chance to commit, to close RocksDB, or to say good-bye."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> float:
        """SIGTERM: it commits and ends. Returns how long that took, in seconds.

        Raises:
            WorkerEnded: its exit status was not 0.
        """
        if self._process is None:
            return 0.0
        begun = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.returncode != 0:
            self.check()
        self._process = None
        return time.monotonic() - begun

    @property
    def running(self) -> bool:
        """Whether it has said, since its last start, that it is done with restoring."""
        return "restoring -> running" in self._log()[self._log_start :]

    def restored(self) -> int | None:
        """How many changelog records it has had to replay since its last start, None when its log does not say."""
        told = re.findall(r"restored store \S+ partition \d+: (\d+) records", self._log()[self._log_start :])
        return sum(map(int, told)) if told else None

    def _log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
