"""Make what a global store keeps of the records of its topic: what executors do.

A task's changelog has the bytes of its rows. The topic of a global store has what its producers wrote: a worker decodes each record with
the topic's serdes, and keeps what the store's serdes make of it. So the same is done here, before anything is reduced: two keys of the
topic may be one in the store, and a record that cannot be decoded replaces nothing. A worker whose handler fails stops at such a
record, and so does the job: what executors cannot decode for want of something would be missing in every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from millpond.errors import SnapshotError

from .catalog_serdes import unpack

__all__ = ("Recoder", "Skipped")

Recode = Callable[[bytes], bytes | None]


class _Recodes(NamedTuple):
    """The functions of one store, from the topic's bytes to the store's; None for what is no key, or no value."""

    key: Recode
    value: Recode


class Skipped(Protocol):
    """Counts records that were left out, as an accumulator of Spark does."""

    def add(self, count: int) -> None:
        """Count so many more."""


@dataclass(frozen=True)
class Recoder:
    """Recodes the records of global stores; a function for `DataFrame.mapInArrow`."""

    serdes: Mapping[int, tuple[bytes, bytes]]
    """By the number of the store: its topic's, and its own."""
    names: Mapping[int, str]
    """Of the stores, for errors."""
    skipped: Skipped | None
    """Counts records that cannot be decoded; None where one is an error, as for workers whose handler fails."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take and return batches with the columns of `reduce.CHANGES`; records without a key, or of other bytes, are left out."""
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
                except Exception as error:  # whatever serdes raise
                    if self.skipped is None:
                        raise self._refused(batch, at, error) from error
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

    def _refused(self, batch: pa.RecordBatch, at: int, error: Exception) -> SnapshotError:
        store, partition, offset = (batch.column(name)[at].as_py() for name in ("store", "partition", "offset"))
        return SnapshotError(
            f"the record at offset {offset} in partition {partition} of the topic of global table '{self.names[store]}' cannot be "
            f"decoded by Spark's executors ({' '.join(str(error).split())}): a worker would stop there. If workers decode it, "
            "install for executors what they have; else set 'deserialization.exception.handler' to continue."
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
