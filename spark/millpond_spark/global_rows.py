"""Recode the records of a global store's topic into the store's serdes. Runs in executors.

A task's changelog has the bytes of its rows. The topic of a global store has the bytes of its producers: a worker
decodes each record with the topic's serdes, and encodes it with the store's. The same is done here before records are
reduced: two keys of the topic may be one key in the store, and a record that cannot be decoded replaces nothing. A
worker whose handler fails stops at such a record, and so does the job: otherwise the rows that executors cannot decode
would be missing in every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from millpond.errors import SnapshotError

from .packed_serdes import unpack

__all__ = ("Recoder", "Skipped")

Recode = Callable[[bytes], bytes | None]


class _Recodes(NamedTuple):
    """The functions of one store from the topic's bytes to the store's; they return None for a missing key or value."""

    key: Recode
    value: Recode


class Skipped(Protocol):
    """The number of skipped records; a Spark accumulator."""

    def add(self, count: int) -> None:
        """Add to the number."""


@dataclass(frozen=True)
class Recoder:
    """The recoding of global stores' records; a function for `DataFrame.mapInArrow`."""

    serdes: Mapping[int, tuple[bytes, bytes]]
    """The packed serdes of the topic and of the store, by the number of the store."""
    names: Mapping[int, str]
    """The names of the stores, for errors."""
    skipped: Skipped | None
    """Counts records that cannot be decoded; None where one is an error, as for workers whose handler fails."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Recode batches with the columns of `reduce.CHANGES`; skip records without a key, and undecodable ones."""
        known: dict[int, _Recodes] = {}
        for batch in batches:
            stores = batch.column("store").to_pylist()
            for each in set(stores) - known.keys():
                known[each] = self._recodes(each)
            kept, keys, values = [], [], []
            columns = (batch.column(name).to_pylist() for name in ("key", "value"))
            skipped = 0
            for at, (store, raw_key, raw_value) in enumerate(zip(stores, *columns, strict=True)):
                recodes = known[store]
                try:
                    key = recodes.key(raw_key)
                    value = None if raw_value is None else recodes.value(raw_value)
                except Exception as error:  # the serdes are the user's
                    if self.skipped is None:
                        raise self._undecodable(batch, at, error) from error
                    skipped += 1
                    continue
                if key is not None:
                    kept.append(at)
                    keys.append(key)
                    values.append(value)
            if self.skipped is not None and skipped:
                self.skipped.add(skipped)
            made = batch.take(pa.array(kept, pa.int64()))
            changed = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
            names = made.schema.names
            yield pa.RecordBatch.from_arrays([changed.get(each, made.column(each)) for each in names], names)

    def _undecodable(self, batch: pa.RecordBatch, at: int, error: Exception) -> SnapshotError:
        store, partition, offset = (batch.column(name)[at].as_py() for name in ("store", "partition", "offset"))
        return SnapshotError(
            f"the record at offset {offset} in partition {partition} of the topic of global table "
            f"'{self.names[store]}' cannot be decoded by Spark's executors ({' '.join(str(error).split())}): a worker "
            "would stop there. If workers can decode it, install the same modules for executors; else set "
            "'deserialization.exception.handler' to continue."
        )

    def _recodes(self, store: int) -> _Recodes:
        of_topic, of_store = (unpack(each, self.names[store]) for each in self.serdes[store])
        return _Recodes(*map(_recode, of_topic, of_store))


def _recode(source: Any, target: Any) -> Recode:
    decode, encode = source.deserialize, target.serialize

    def recode(data: bytes) -> bytes | None:
        try:
            found = decode(data)
        except Exception as error:
            raise source.decoding_failed(data, error) from error
        return None if found is None else encode(found)

    return recode
