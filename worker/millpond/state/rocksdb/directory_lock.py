"""The lock that lets one process at a time use a state directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from millpond.errors import StateDirectoryLocked
from millpond.forks import opened_here

__all__ = ("DirectoryLock",)


class DirectoryLock:
    """An advisory lock on a directory, held until `release` or until the process ends for any reason.

    The kernel releases the lock when the last process that has the file open ends, so a file left by a kill -9 locks
    nothing, and children of this process close the file.

    Raises:
        StateDirectoryLocked: another process has locked the directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "lock"
        # Not truncated when opened: until this process has the lock, the file names the process that has it.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        file = opened_here(lambda: os.fdopen(os.open(self._path, flags, 0o644), "r+b", buffering=0))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file.fileno(), 32, 0).decode("ascii", "replace").strip()
            file.close()
            raise StateDirectoryLocked(_locked_message(directory, holder)) from None
        except BaseException:
            file.close()
            raise
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Release the lock. Idempotent; a child of the process that has the lock releases nothing."""
        if not self._file.closed:
            os.ftruncate(self._file.fileno(), 0)
            self._file.close()


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
