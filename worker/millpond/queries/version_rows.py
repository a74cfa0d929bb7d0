"""The rows of versioned stores, as queries read them: one for each value of a key, with the time of its validity.

The key of such a row is the serialised key ++ timestamp (8 bytes), and its value is the time at which the next version
begins (8 bytes, -1 for the latest one) ++ the encoded value. Deletions are no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.state.stores.versioned.history import Version, history_of, select_versions, version_as_of

from .catalog import StoreInfo
from .messages import Read, Row

__all__ = ("committed_versions", "staged_versions")

_MAX_LONG = 2**63 - 1


def committed_versions(info: StoreInfo, backend: Any, read: Read, partition: int, observed: int) -> list[Row]:
    """Return the committed rows of a request's key and times; `observed` is the committed stream time, in ms."""
    return _rows(info, history_of(backend, info.name, partition, read.low, observed), read, partition, observed)


def staged_versions(info: StoreInfo, store: Any, read: Read, partition: int) -> list[Row]:
    """Return the rows of the key and the times of a request, with those that are not committed."""
    history = store._history(read.low)  # noqa: SLF001 - staged rows have no public interface
    return _rows(info, history, read, partition, store.observed_stream_time)


def _rows(info: StoreInfo, history: list[Version], read: Read, partition: int, observed: int) -> list[Row]:
    return [
        (
            read.low + timestamp.to_bytes(8, "big"),
            partition,
            (-1 if valid_to is None else valid_to).to_bytes(8, "big", signed=True) + data,
        )
        for timestamp, valid_to, data in _selected(info, history, read, observed)
    ]


def _selected(
    info: StoreInfo, history: list[Version], read: Read, observed: int
) -> Iterator[tuple[int, int | None, bytes]]:
    oldest = observed - info.retention_ms
    if read.as_of is None:
        last = None if read.last == _MAX_LONG else read.last
        found = select_versions(history, read.first, last, observed, info.retention_ms, info.segment_ms)
        return iter(found[::-1] if read.reverse else found)
    at = version_as_of(history, read.as_of, oldest)
    if at is None or (data := history[at][1]) is None:
        return iter(())
    return iter([(history[at][0], history[at + 1][0] if at + 1 < len(history) else None, data)])
