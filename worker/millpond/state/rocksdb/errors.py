"""Translate RocksDB's errors, which differ only in their text, into `StateError` with cause and cure."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from millpond.errors import StateCorrupted, StateError

__all__ = ("free_bytes", "is_corruption", "named_file", "state_error")

_MIB = 1024 * 1024
_SST_FILE = re.compile(r"\b0*(\d+)\.sst\b")
_NO_SPACE = ("No space left", "File too large", "Disk quota exceeded")


def is_corruption(text: str) -> bool:
    """Return whether the text of an error means that the database is damaged."""
    return "Corruption" in text or ("No such file" in text and named_file(text) is not None)


def named_file(text: str) -> int | None:
    """Return the number of the SST file that an error names; None if the error names no file."""
    found = _SST_FILE.search(text)
    return None if found is None else int(found[1])


def state_error(text: str, directory: Path, store: str | None) -> StateError:
    """Return the error to raise for an error of RocksDB.

    Args:
        text: the text of RocksDB's error.
        directory: the directory of the worker.
        store: the store that the error is about; None if that is unknown.
    """
    if is_corruption(text):
        what = f"store '{store}'" if store else "the database"
        return StateCorrupted(
            f"{what} in '{directory}' is corrupted and has to be rebuilt from its changelog: {text}", store
        )
    if any(each in text for each in _NO_SPACE):
        return StateError(
            f"no space is left for state in '{directory}' ({_free_space(directory)}): free some or give the "
            f"volume more, then restart the worker; it continues from its last commit ({text})"
        )
    return StateError(f"the state file in '{directory}' failed: {text}")


def free_bytes(directory: Path) -> int | None:
    """Return the free bytes of the volume of a directory, None when they are unknown."""
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _free_space(directory: Path) -> str:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return "its free space is unknown"
    return f"{usage.free // _MIB} MiB free of {usage.total // _MIB} MiB"
