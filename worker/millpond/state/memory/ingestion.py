"""Ingestion into memory, some rows at a time."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rocksdict import IngestExternalFileOptions, Options, Rdict

from millpond.errors import StateError
from millpond.state.backend import Row
from millpond.state.ingestion import Checkpoint

__all__ = ("MemoryIngestion",)

#: Rows per call: these take some 10 ms, in which running tasks wait.
_ROWS = 5_000


class MemoryIngestion:
    """An `Ingestion` into memory; made by `MemoryBackend.ingestion`."""

    def __init__(
        self,
        put: Callable[[list[Row]], None],
        finish: Callable[[Mapping[int, Checkpoint]], None],
        drop: Callable[[], None],
    ) -> None:
        """Prepare an ingestion into a partition without rows.

        Args:
            put: writes rows.
            finish: writes the checkpoints.
            drop: deletes the rows.
        """
        self._put, self._finish, self._drop = put, finish, drop
        self._file: _SstRows | None = None

    def add(self, path: Path) -> bool:
        """Ingest some thousand rows of an SST file; see `Ingestion`."""
        try:
            if self._file is None:
                self._file = _SstRows(path)
            rows = self._file.take(_ROWS)
        except Exception as error:  # RocksDB raises plain exceptions
            raise StateError(f"the file '{path.name}' cannot be read: {error}") from error
        self._put(rows)
        if len(rows) == _ROWS:
            return False
        self._close()
        return True

    def finish(self, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Write the checkpoints; see `Ingestion`."""
        self._finish(checkpoints)

    def abandon(self) -> None:
        """Delete the rows."""
        self._close()
        self._drop()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


class _SstRows:
    """The rows of an SST file. rocksdict reads such a file only in a database: it is moved into a temporary one."""

    def __init__(self, path: Path) -> None:
        self._folder = path.with_suffix(".rows")
        shutil.rmtree(self._folder, ignore_errors=True)  # left by a process that was killed
        self._database = Rdict(str(self._folder), Options(raw_mode=True))
        try:
            moved = IngestExternalFileOptions()
            moved.set_move_files(True)
            self._database.ingest_external_file([str(path)], moved)
            self._rows: Iterator[Any] = iter(self._database.items())
        except BaseException:
            self.close()
            raise

    def take(self, count: int) -> list[Row]:
        """Return the next rows; fewer than `count` at the end."""
        return list(islice(self._rows, count))

    def close(self) -> None:
        """Delete the temporary database."""
        self._rows = iter(())  # an iterator of RocksDB keeps the database open
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)
