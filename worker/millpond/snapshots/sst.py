"""Write rows into SST files that the state file can ingest without changes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rocksdict import SstFileWriter

from millpond.errors import SnapshotError
from millpond.state.rocksdb.options import StateFileOptions, Tuning

__all__ = ("SstFile", "file_sha256", "write_sst")

_CHUNK = 1 << 20


class SstFile(NamedTuple):
    """A file that was written."""

    rows: int
    bytes: int
    sha256: str


def write_sst(rows: Iterable[tuple[bytes, bytes]], path: Path | str) -> SstFile:
    """Write one SST file with the state file's table options.

    Args:
        rows: full keys and values, ascending by key, each key once.
        path: the file to create; its directory must exist. Without rows no file is created.

    Returns:
        Rows, bytes and hexadecimal SHA-256 of the file; (0, 0, "") without rows.

    Raises:
        SnapshotError: the keys do not ascend, or the file cannot be written.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return SstFile(0, 0, "")
    path = Path(path)
    # The options include a block cache, which stays empty: nothing is read.
    writer = SstFileWriter(Tuning(StateFileOptions()).family())
    count = 1
    try:
        writer.open(str(path))
        writer[first[0]] = first[1]
        for key, value in rows:
            writer[key] = value
            count += 1
        writer.finish()
        return SstFile(count, path.stat().st_size, file_sha256(path))
    except Exception as error:  # RocksDB raises plain exceptions
        path.unlink(missing_ok=True)
        if "strict ascending order" in str(error):
            raise SnapshotError(f"'{path.name}' cannot be written: its keys do not ascend") from error
        raise SnapshotError(f"the SST file '{path}' cannot be written: {error}") from error


def file_sha256(path: Path | str) -> str:
    """Return the hexadecimal SHA-256 of a file."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
