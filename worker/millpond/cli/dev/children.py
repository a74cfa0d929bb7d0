"""Child processes of a session: started with a log of their own, and gone when the session is."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from . import child_reaper as leash

__all__ = ("Child", "Leash", "ProcessLog")

_LAST_LINES = 15
_RECENT_S = 60.0
# What millpond ends with, a logged error, or the last line of a traceback.
_ERROR = re.compile(
    r"millpond: (?P<ended>.*)|\d{4}-\d\d-\d\d[T ]\S+ (ERROR|CRITICAL) (?P<logged>.*)|(?P<raised>[A-Z][\w.]*(Error|Exception): .*)"
)
_METRICS = re.compile(r"metrics on (http://\S+)")


class Leash:
    """Kills the children when this process dies without a chance to do so itself (see `millpond.cli.dev.child_reaper`).

    Args:
        directory: a temporary directory to remove then.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", leash.__file__, *([] if directory is None else [str(directory)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in the terminal is for the session
            text=True,
        )

    def hold(self, pid: int) -> None:
        """From now on that process goes with this one."""
        self._say(f"+{pid}")

    def release(self, pid: int) -> None:
        """It has ended."""
        self._say(f"-{pid}")

    def close(self) -> None:
        """All is in order: nothing is killed."""
        if self._process.poll() is None:
            self._say("done")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
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
    """A child's log as it grows: where its metrics are, and its last error.

    Attributes:
        path: the file.
        metrics: URL of the metrics of the latest process, empty while unknown.
        error: its last error, empty without one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics: str = ""
        self.error: str = ""
        self._read = 0
        self._rest = ""
        self._error_at = 0.0

    def new_process(self) -> None:
        """What follows is said by another process."""
        self.look()
        self.metrics = self.error = self._rest = ""

    def look(self) -> None:
        """Read what is new."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return
        self._read += len(new)
        *lines, self._rest = (self._rest + new.decode(errors="replace")).split("\n")
        for line in lines:
            if found := _METRICS.search(line):
                self.metrics = found[1]
            elif found := _ERROR.match(line):
                self.error = next(filter(None, (found["ended"], found["logged"], found["raised"])), "")
                self._error_at = time.monotonic()

    @property
    def recent_error(self) -> str:
        """Its last error, empty when that was a while ago."""
        return self.error if time.monotonic() - self._error_at < _RECENT_S else ""

    def end(self) -> str:
        """Its last lines."""
        text = self.path.read_text(errors="replace") if self.path.exists() else ""
        return "\n".join(text.splitlines()[-_LAST_LINES:])


class Child:
    """A process, its standard error and output in a log.

    Attributes:
        pid: its id.
    """

    def __init__(self, process: asyncio.subprocess.Process, held_by: Leash) -> None:
        self._process = process
        self._leash = held_by
        self.pid: int = process.pid

    @classmethod
    async def start(cls, command: Sequence[str], log: Path, held_by: Leash, *, piped: bool = False) -> Self:
        """Start a command.

        Args:
            command: program and arguments.
            log: what it says is appended here.
            held_by: ends it with this process.
            piped: its standard output comes through `lines` instead.
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
        held_by.hold(process.pid)
        return cls(process, held_by)

    async def line(self) -> str:
        """The next line of its standard output; empty when it has ended."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()

    @property
    def running(self) -> bool:
        """Whether it has not been seen to end."""
        return self._process.returncode is None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Its exit status once it has ended, negative for a signal."""
        status = await self._process.wait()
        self._leash.release(self.pid)
        return status

    async def stop(self, patience_s: float) -> int:
        """SIGTERM, and SIGKILL when that takes too long; returns its exit status."""
        self.send(signal.SIGTERM)
        try:
            return await asyncio.wait_for(asyncio.shield(self.wait()), patience_s)
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()
