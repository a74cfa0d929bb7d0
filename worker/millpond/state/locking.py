"""One process per state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millpond.errors import StateDirectoryLocked

__all__ = ("DirectoryLock",)


class DirectoryLock:
    """An advisory lock on a directory, held until `release` or the end of the process, however it ends.

    The kernel gives the lock up with the process, so a file left by a kill -9 locks nothing.

    Raises:
        StateDirectoryLocked: another process has it.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        # Never opened for truncation: until the lock is ours the file tells who has it.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StateDirectoryLocked(_sentence(directory, holder)) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the lock up. Idempotent."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _sentence(directory: Path, holder: str) -> str:
    if holder == str(os.getpid()):
        who = "this very process"
    elif holder.isdecimal():
        who = f"process {holder}"
    else:
        who = "another process"
    return (
        f"the state directory '{directory}' is in use by {who}: stop it, "
        "or give this worker another 'state.dir' or worker name"
    )
