"""Copies of a location's files on the local disk; a copy continues an earlier attempt that was interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Self

from millpond.errors import SnapshotError

__all__ = ("PARTIAL", "LocalCopy")

PARTIAL = ".partial"
"""The suffix of the names of incomplete files."""


class LocalCopy:
    """A file that is being copied to a local path. Bytes that an earlier attempt has copied are not copied again.

    Its methods raise `SnapshotError` when the local disk is full or fails.
    """

    def __init__(self, local: Path) -> None:
        self._local = local
        self._partial = local.with_name(local.name + PARTIAL)
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        with self._disk_errors():
            self._file = self._partial.open("ab", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._file is not None
        self._file.close()

    def begin(self, size: int) -> int:
        """Return the number of bytes already copied, of a file with this size."""
        assert self._file is not None
        with self._disk_errors():
            if self._file.tell() > size:
                self._file.truncate(0)
                self._file.seek(0)
            return self._file.tell()

    def add(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        assert self._file is not None
        rest = memoryview(data)
        with self._disk_errors():
            while rest:
                rest = rest[self._file.write(rest) :]

    def finish(self) -> None:
        """Rename the complete copy to its path."""
        with self._disk_errors():
            self._partial.replace(self._local)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SnapshotError(
                f"cannot write '{self._local}': {error.strerror or error}; check the local disk's free space and rights"
            ) from error
