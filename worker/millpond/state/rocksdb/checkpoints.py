r"""The checkpoints of the state file: for each store partition its changelog offset, metadata and provenance.

They are rows of the default column family, so that one write batch has the rows of stores and their checkpoints:

    <store> <partition>                   offset (8 bytes, -1 for none), then metadata
    \0provenance:<store> <partition>      provenance
    \0ingesting:<store> <partition>       marker: an ingestion has begun and has not finished

No store's name begins with a zero byte. Older versions of millpond read the other two as stores that
the application does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocksdict import Rdict, WriteBatch

from millpond.state.backend import Written
from millpond.state.formats import partition_prefix
from millpond.state.provenance import Provenance

__all__ = ("Checkpoints", "Place", "decode_offset", "offset_key", "provenance_key", "read_checkpoints")

Place = tuple[str, int]
"""Store and partition."""

_offset = struct.Struct(">q")
_NO_OFFSET = -1
_PROVENANCE = b"\0provenance:"
_INGESTING = b"\0ingesting:"
#: As long as an offset, as older versions expect.
_MARKED = b"\xff" * 8


class Checkpoints(NamedTuple):
    """The checkpoints of all store partitions, as last written."""

    written: dict[Place, Written]
    """Offset and metadata."""
    provenances: dict[Place, Provenance]
    unfinished: set[Place]
    """Partitions whose ingestion has not finished: their rows are deleted when a worker opens the state file."""

    def forget(self, place: Place) -> None:
        """Forget the checkpoint of a store partition."""
        self.written.pop(place, None)
        self.provenances.pop(place, None)
        self.unfinished.discard(place)


def offset_key(store: str, partition: int) -> bytes:
    """Return the key of offset and metadata."""
    return store.encode() + partition_prefix(partition)


def provenance_key(store: str, partition: int) -> bytes:
    """Return the key of the provenance."""
    return _PROVENANCE + offset_key(store, partition)


def decode_offset(value: bytes) -> Written:
    """Return the offset (None without one) and the metadata."""
    (offset,) = _offset.unpack_from(value)
    return None if offset == _NO_OFFSET else offset, value[_offset.size :]


def put_offsets(batch: WriteBatch, offsets: Mapping[Place, Written]) -> None:
    """Put offsets and metadata into a batch."""
    put = batch.put
    for (store, partition), (offset, metadata) in offsets.items():
        put(offset_key(store, partition), _offset.pack(_NO_OFFSET if offset is None else offset) + metadata)


def put_provenances(batch: WriteBatch, provenances: Mapping[Place, Provenance]) -> None:
    """Put provenances into a batch."""
    for (store, partition), provenance in provenances.items():
        batch.put(provenance_key(store, partition), provenance.encode())


def delete_checkpoints(batch: WriteBatch, places: Iterable[Place]) -> None:
    """Delete offsets, metadata and provenances in a batch; markers stay."""
    for store, partition in places:
        batch.delete(offset_key(store, partition))
        batch.delete(provenance_key(store, partition))


def put_marker(batch: WriteBatch, store: str, partition: int) -> None:
    """Mark the ingestion of a store partition as begun, in a batch."""
    batch.put(_marker_key(store, partition), _MARKED)


def delete_marker(batch: WriteBatch, store: str, partition: int) -> None:
    """Delete the marker of a store partition, in a batch."""
    batch.delete(_marker_key(store, partition))


def read_checkpoints(database: Rdict) -> Checkpoints:
    """Read the checkpoints of an open database."""
    found = Checkpoints({}, {}, set())
    iterator = database.iter()
    try:
        iterator.seek_to_first()
        while iterator.valid():
            key, value = iterator.key(), iterator.value()
            (partition,) = struct.unpack_from(">i", key, len(key) - 4)
            if key.startswith(_PROVENANCE):
                found.provenances[key[len(_PROVENANCE) : -4].decode(), partition] = Provenance.decode(value)
            elif key.startswith(_INGESTING):
                found.unfinished.add((key[len(_INGESTING) : -4].decode(), partition))
            else:
                found.written[key[:-4].decode(), partition] = decode_offset(value)
            iterator.next()
        iterator.status()
    finally:
        # The database lives as long as any object of it, and an error keeps this frame.
        del iterator, database
    return found


def _marker_key(store: str, partition: int) -> bytes:
    return _INGESTING + offset_key(store, partition)
