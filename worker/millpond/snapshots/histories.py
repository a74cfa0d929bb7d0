"""The rows of versioned stores in snapshots: changelog records of a key, in their order, become its versions. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.state.stores.versioned.history import Version, pack_version, put_version, row_of, take_expired

from .layouts import StoreLayout

__all__ = ("versions_of",)


def versions_of(
    layout: StoreLayout, key: bytes, records: Iterable[tuple[int, bytes | None]], stream_time_ms: int
) -> list[tuple[bytes, bytes, int]]:
    """Return the versions that a replay of the records of one key leaves, for `layouts.row_function`.

    Expired versions are left out. No later put can find them: it would have to be older than the history retention.

    Args:
        layout: the layout of the store.
        key: the key.
        records: the timestamp in ms and the value (None is a deletion) of its records, in the order of the changelog,
            without those that were older than the history retention when they were put.
        stream_time_ms: the largest timestamp of all records of the partition.

    Returns:
        the key with the time of the version, the value of its row, and its timestamp in ms.
    """
    history: list[Version] = []
    for timestamp, value in records:
        put_version(history, timestamp, value)
    take_expired(history, stream_time_ms, layout.retention_ms, layout.segment_ms)
    return [(key + pack_version(version[0]), row_of(version), version[0]) for version in history]
