"""Child processes of a session: each with a log file, and killed when the session dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from . import child_reaper

__all__ = ("Child", "ChildReaper", "ProcessLog")

_LAST_LINES = 15
_RECENT_S = 60.0
# The last line of millpond, a logged error, or the last line of a traceback.
_ERROR = re.compile(
    r"millpond: (?P<ended>.*)"
    r"|\d{4}-\d\d-\d\d[T ]\S+ (?:ERROR|CRITICAL) (?P<logged>.*)"
    r"|(?P<raised>[A-Z][\w.]*(Error|Exception): .*)"
)
# The lines of `runtime.processing.drop_log`: the operator, and what it did with records.
_DROPPED = re.compile(
    r"(?P<text>(?:node|join) '(?P<name>[^']*)'"
    r"(?P<what> dropped (?:a|\d+) late record| dropped (?:a|\d+) records? [^(]*?(?= in the last| \()| could not \w+"
    r"|: results of (?:a|\d+) record).*)"
)
_METRICS = re.compile(r"metrics on (http://\S+)")


class ChildReaper:
    """A process that kills the children when this process is killed (see `millpond.cli.dev.child_reaper`).

    Args:
        directory: a temporary directory, removed in that case.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", child_reaper.__file__, *([] if directory is None else [str(directory)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for the session
            text=True,
        )

    def watch(self, pid: int) -> None:
        """Make the reaper kill a process when this process dies."""
        self._send(f"+{pid}")

    def release(self, pid: int) -> None:
        """Tell the reaper that a process has ended."""
        self._send(f"-{pid}")

    def close(self) -> None:
        """End the reaper; it kills no process."""
        if self._process.poll() is None:
            self._send("done")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ProcessLog:
    """A child's log, read as it grows for the URL of its metrics and its last error.

    Attributes:
        path: the file.
        metrics: URL of the latest process's metrics; empty while it is not known.
        error: the latest process's last error; empty without one.
        drops: lines about dropped records that nobody has taken, the first one for each operator and reason.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics: str = ""
        self.error: str = ""
        self.drops: list[str] = []
        self._told_drops: set[tuple[str, str]] = set()
        self._position = 0
        self._partial_line = ""
        self._error_at = 0.0

    def new_process(self) -> None:
        """Forget the last process: the next lines of the log are from a new one."""
        self.read()
        self.metrics = self.error = self._partial_line = ""

    def read(self) -> None:
        """Read the lines that were appended since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except FileNotFoundError:
            return
        self._position += len(new)
        *lines, self._partial_line = (self._partial_line + new.decode(errors="replace")).split("\n")
        for line in lines:
            message, error = _entry(line)
            if found := _METRICS.search(message):
                self.metrics = found[1]
            elif error:
                self.error, self._error_at = error, time.monotonic()
            elif found := _DROPPED.search(message):
                about = found["name"], re.sub(r" (a|\d+) records?", "", found["what"])
                if about not in self._told_drops:
                    self._told_drops.add(about)
                    self.drops.append(found["text"])

    @property
    def recent_error(self) -> str:
        """The last error; empty if it is older than a minute."""
        return self.error if time.monotonic() - self._error_at < _RECENT_S else ""

    def tail(self) -> str:
        """Return the last lines of the process's log."""
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def _entry(line: str) -> tuple[str, str]:
    """Return the message of a line of a log and, if it is an error, its text; `log.format` may be text or json."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            message = str(fields.get("message", ""))
            return message, message if fields.get("level") in ("ERROR", "CRITICAL") else ""
    found = _ERROR.match(line)
    return line, next(filter(None, found.groupdict().values()), "") if found else ""


class Child:
    """A child process, with standard error and output in a log.

    Attributes:
        pid: the process id.
    """

    def __init__(self, process: asyncio.subprocess.Process, reaper: ChildReaper) -> None:
        self._process = process
        self._reaper = reaper
        self.pid: int = process.pid

    @classmethod
    async def start(cls, command: Sequence[str], log: Path, reaper: ChildReaper, *, piped: bool = False) -> Self:
        """Start a command.

        Args:
            command: program and arguments.
            log: the file that the output of the command is appended to.
            reaper: kills the child when this process dies.
            piped: whether standard output is read by `line` instead of appended to the log.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE if piped else file,
                stderr=file,
                process_group=0,  # no session of its own, which the scheduler may leave without time on a busy machine
            )
        reaper.watch(process.pid)
        return cls(process, reaper)

    async def line(self) -> str:
        """Return the next line of the child's standard output; empty at its end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    @property
    def running(self) -> bool:
        """Whether the child runs, as far as is known."""
        return self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Wait for the end of the child; return its exit status, negative for a signal."""
        status = await self._process.wait()
        self._reaper.release(self.pid)
        return status

    async def stop(self, timeout_s: float) -> int:
        """Send SIGTERM to the child, and SIGKILL after the timeout in seconds; return its exit status."""
        self.send(signal.SIGTERM)
        try:
            return await asyncio.wait_for(asyncio.shield(self.wait()), timeout_s)
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()
