"""The rows of versioned stores in a comparison: a put may change several rows, and expired rows go at any time. Pure.

So the puts since are applied to the history of their key, and both sides are compared without expired versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter

from millpond.snapshots.layouts import StoreLayout
from millpond.state.stores.versioned.history import (
    VERSION_LENGTH,
    Version,
    pack_version,
    put_version,
    row_of,
    take_expired,
    version_of,
)

from .comparing import Change
from .sources import Row

__all__ = ("VersionsOf", "accepted_puts", "live_rows")

Puts = Mapping[bytes, list[Version]]
"""The versions that were put, by key in store format without the time, in the order of the changelog."""


class VersionsOf:
    """The rows of some keys, whatever their time."""

    def __init__(self, keys: set[bytes]) -> None:
        self._keys = keys

    def __contains__(self, row: object) -> bool:
        return isinstance(row, bytes) and row[:-VERSION_LENGTH] in self._keys


def accepted_puts(
    changes: Iterable[Change], layout: StoreLayout, observed: int
) -> tuple[dict[bytes, list[Version]], int]:
    """Return the puts that a store did not reject, and its stream time after them.

    Args:
        changes: the records of the changelog, in their order.
        layout: the layout of the store.
        observed: the stream time of the store before them, in epoch ms.
    """
    puts: dict[bytes, list[Version]] = {}
    for change in changes:
        if change.timestamp >= observed - layout.retention_ms:
            puts.setdefault(change.key, []).append((change.timestamp, change.value))
            observed = max(observed, change.timestamp)
    return puts, observed


def live_rows(rows: Iterable[Row], puts: Puts, layout: StoreLayout, observed: int) -> Iterator[Row]:
    """Return the rows after some puts, without those of expired versions, in ascending order of keys.

    Args:
        rows: the rows before the puts, in ascending order of keys.
        puts: the puts.
        layout: the layout of the store.
        observed: a stream time in epoch ms that no version is beyond.
    """
    newest = pack_version(max(observed, 0))
    found = ((row, row[:-VERSION_LENGTH], _version(row, value)) for row, value in rows)
    put_keys = ((key, key, None) for key in sorted(puts))
    # Rows of a key that begins with another one may be between the rows of that key. All of them are taken together.
    histories: dict[bytes, list[Version]] = {}
    end = b""

    def taken() -> list[Row]:
        live: list[Row] = []
        for key, history in histories.items():
            for timestamp, data in puts.get(key, ()):
                put_version(history, timestamp, data)
            take_expired(history, observed, layout.retention_ms, layout.segment_ms)
            live += [(key + pack_version(version[0]), row_of(version)) for version in history]
        histories.clear()
        return sorted(live)

    for _, key, version in merge(put_keys, found, key=itemgetter(0)):
        if key > end:
            yield from taken()
        history = histories.setdefault(key, [])
        if version is not None:
            history.append(version)
        end = max(end, key + newest)
    yield from taken()


def _version(row: bytes, value: bytes) -> Version:
    return int.from_bytes(row[-VERSION_LENGTH:], "big"), version_of(value)
