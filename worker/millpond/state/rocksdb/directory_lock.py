"""The lock that lets one process at a time use a state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millpond.errors import StateDirectoryLocked

__all__ = ("DirectoryLock",)


class DirectoryLock:
    """An advisory lock on a directory, held until `release` or until the process ends for any reason.

    The kernel releases the lock with the process, so a file left by a kill -9 locks nothing.

    Raises:
        StateDirectoryLocked: another process has locked the directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        # Not truncated when opened: until this process has the lock, the file names the process that has it.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise StateDirectoryLocked(_locked_message(directory, holder)) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def _locked_message(directory: Path, holder: str) -> str:
    if holder == str(os.getpid()):
        user = "this very process"
    elif holder.isdecimal():
        user = f"process {holder}"
    else:
        user = "another process"
    return (
        f"the state directory '{directory}' is in use by {user}: stop it, or give this worker another 'worker.id' "
        "(several workers of an application need a coordinator, as `millpond dev --workers 2` has) or another "
        "'state.dir'"
    )
