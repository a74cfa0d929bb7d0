"""Column families and scans of the state file, as objects that can release RocksDB's objects.

The database and its lock live as long as any Python object of it: a column family, a handle, an iterator. An exception
keeps its frames' variables alive, so no frame that an error may leave has such an object in a variable of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NoReturn

from rocksdict import ColumnFamily, Rdict, RdictIter, ReadOptions

from millpond.errors import StateError

__all__ = ("Family", "Scan")


class Family:
    """A column family and its handle, which are replaced when the store is rebuilt."""

    __slots__ = ("get", "handle", "rows", "store")

    rows: Rdict | None
    handle: ColumnFamily | None
    get: Callable[[bytes], bytes | None]

    def __init__(self, store: str) -> None:
        self.store: str = store
        self.close()

    def open(self, rows: Rdict, handle: ColumnFamily) -> None:
        self.rows, self.handle, self.get = rows, handle, rows.get

    def close(self) -> None:
        self.rows = self.handle = None
        self.get = _closed


def _closed(key: bytes) -> bytes | None:
    raise StateError("the state file is closed")


class Scan:
    """The rows of a range, as they were at the creation of RocksDB's iterator."""

    __slots__ = ("__weakref__", "_bounds", "_fail", "_iterator", "_low", "_step", "_store", "opened_at")

    def __init__(
        self,
        family: Family,
        low: bytes,
        high: bytes | None,
        fail: Callable[[Exception, str], NoReturn],
        *,
        reverse: bool,
    ) -> None:
        if family.rows is None:
            raise StateError("the state file is closed")
        options = ReadOptions()
        if high is not None:
            options.set_iterate_upper_bound(high)
        # The iterator reads the bound in the memory of these options: they must live as long as it does.
        self._bounds = options
        self._fail, self._store = fail, family.store
        self.opened_at: float = time.monotonic()
        # rocksdict 0.3.29 applies a lower bound as the upper one: a descending scan checks each key instead.
        self._low = low if reverse else b""
        self._iterator: RdictIter | None = family.rows.iter(options)
        self._step: Callable[[], None] = self._iterator.prev if reverse else self._iterator.next
        try:
            if reverse:
                self._iterator.seek_to_last()
            else:
                self._iterator.seek(low)
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            self.close()
            fail(error, family.store)

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        iterator = self._iterator
        if iterator is None:
            raise StopIteration
        try:
            if iterator.valid():
                row = (iterator.key(), iterator.value())
                if row[0] >= self._low:
                    self._step()
                    return row
            else:
                iterator.status()
        except Exception as error:  # noqa: BLE001  # RocksDB raises plain exceptions
            iterator = None
            self.close()
            self._fail(error, self._store)
        self.close()
        raise StopIteration

    @property
    def is_open(self) -> bool:
        return self._iterator is not None

    def close(self) -> None:
        self._iterator = None
        self._step = _nothing


def _nothing() -> None:
    return None
