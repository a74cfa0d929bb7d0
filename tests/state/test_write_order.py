"""The order of writes in the state file: offsets never precede their rows, and nothing follows a failed write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.errors import StateError
from millpond.state import StateFile, StateFileOptions
from millpond.state.backend import Rows
from millpond.state.formats import partition_prefix


def _opened(path: Path) -> StateFile:
    return StateFile(path, StateFileOptions())


def _write(state: StateFile, key: bytes, value: bytes, offset: int, partition: int = 0) -> None:
    rows = Rows([(partition_prefix(partition) + key, value)])
    state.write([("counts", partition, rows)], {("counts", partition): (offset, b"")})


def _read(state: StateFile, key: bytes) -> bytes | None:
    return state.reader("counts")(partition_prefix(0) + key)


def test_dropped_partition_has_no_offset_after_a_restart(tmp_path: Path) -> None:
    """Deleted rows are restored from the beginning of the changelog; other partitions keep their offsets."""
    state = _opened(tmp_path)
    _write(state, b"a", b"1", 10)
    _write(state, b"b", b"2", 20, partition=1)
    state.drop("counts", 0)
    assert state.offset("counts", 0) is None
    state.close()
    again = _opened(tmp_path)
    assert _read(again, b"a") is None
    assert again.offset("counts", 0) is None
    assert again.offset("counts", 1) == 20
    again.close()


class _FullDisk:
    """A database whose disk is full."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def write(self, *_: Any) -> None:
        raise OSError("IO error: No space left on device: while appending")


def test_nothing_is_written_after_a_failed_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be space again a moment later, but the rows of the failed batch would be missing."""
    state = _opened(tmp_path)
    _write(state, b"a", b"1", 10)
    database = state._database.opened()
    with monkeypatch.context() as patched:
        patched.setattr(state._database, "opened", lambda: _FullDisk(database))
        with pytest.raises(StateError, match="no space is left"):
            _write(state, b"a", b"2", 11)
    assert state.offset("counts", 0) == 10, "the offset is that of the rows"
    with pytest.raises(StateError, match="no space is left"):
        _write(state, b"b", b"3", 12)
    assert (_read(state, b"a"), _read(state, b"b")) == (b"1", None)
    state.close()
    again = _opened(tmp_path)
    assert (again.offset("counts", 0), _read(again, b"a"), _read(again, b"b")) == (10, b"1", None)
    again.close()
