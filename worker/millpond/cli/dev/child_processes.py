"""Child processes of a session: each appends to a log file, and is killed when the session dies."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from . import child_reaper

__all__ = ("Child", "ChildReaper", "ending")


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
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self.wait())
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()


def ending(status: int) -> str:
    """Return how a process ended, as a part of a sentence."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"
