"""The logs of a session of this machine: files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from pathlib import Path

from millpond.cli.dev.remote import Remote
from millpond.cli.dev.status import SessionStatus
from millpond.errors import MillpondError

from .lines import Line, Printer

__all__ = ("print_files",)

_POLL_S = 0.5


def print_files(remote: Remote, workers: Collection[str], task: str | None, *, follow: bool, tail: int | None) -> None:
    """Print the logs of a session's workers, one after the other; with `follow`, what is appended until Ctrl-C.

    Raises:
        MillpondError: there is no such worker, no worker has the task, or the session has no log files.
    """
    if (status := remote.status()).in_process:
        raise MillpondError(
            f"the session of '{status.application}' logs to its own terminal: log files are those of `millpond dev` "
            "with --workers."
        )
    printer = Printer((each.worker for each in status.workers), timestamps=False)
    offsets: dict[str, int] = {}
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for worker, path in _files(remote.status(), workers, task).items():
                first = worker not in offsets
                lines, offsets[worker] = _read(path, offsets.get(worker, 0))
                for text in lines[max(0, len(lines) - tail) :] if first and tail is not None else lines:
                    printer.line(Line("", worker, text))
            if not follow:
                return
            time.sleep(_POLL_S)


def _files(status: SessionStatus, workers: Collection[str], task: str | None) -> dict[str, Path]:
    """Return the logs of the chosen workers, by worker."""
    known = {each.worker: Path(each.log) for each in status.workers if each.log}
    if unknown := next((each for each in workers if each not in known), None):
        raise MillpondError(f"the session has no worker '{unknown}': it has {', '.join(known) or 'none'}.")
    if task is None:
        return {worker: path for worker, path in known.items() if not workers or worker in workers}
    holder = next((each.worker for each in status.workers if task in each.active), None)
    if holder is None and task not in status.waiting:
        raise MillpondError(f"the session has no task '{task}': `millpond tasks {status.application}` lists them.")
    return {holder: known[holder]} if holder is not None else {}


def _read(path: Path, offset: int) -> tuple[list[str], int]:
    """Return the complete lines after an offset in bytes, and the offset after them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:  # the worker has not been started yet
        return [], offset
    end = content.rfind(b"\n") + 1
    return content[:end].decode(errors="replace").splitlines(), offset + end
