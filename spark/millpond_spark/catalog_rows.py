"""Decode the rows of a store into the columns of its table: what executors do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.snapshots.columns import StoreColumns
from millpond.snapshots.rows import StoreLayout, row_function
from millpond.state.builders import StoreBuilder
from millpond.state.formats import BUFFER_HEADERS
from millpond.state.rows import RowOf

from .catalog_serdes import pack, unpack

__all__ = ("ColumnDecoder", "decoder_of")

_FORMAT = BUFFER_HEADERS[0][0]


@dataclass(frozen=True)
class ColumnDecoder:
    """Decodes the rows of one store; a function for `DataFrame.mapInArrow`."""

    store: str
    layout: StoreLayout
    window_size_ms: int | None
    """Of a window store."""
    serdes: bytes | None
    """Of keys and values, see `catalog_serdes.pack`; None to keep bytes."""
    reason: str | None
    """Why bytes are kept, a clause; None when they are decoded."""

    def columns(self) -> StoreColumns:
        """Return the store's columns.

        Raises:
            SnapshotError: the application's modules cannot be imported here.
        """
        if self.serdes is None:
            return StoreColumns(self.layout, window_size_ms=self.window_size_ms)
        key, value = unpack(self.serdes, self.store)
        return StoreColumns(self.layout, key=key, value=value, window_size_ms=self.window_size_ms)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take batches with the columns of `reduce.alive_rows`; return batches with the store's columns."""
        columns = self.columns()
        makers: dict[int, RowOf] = {}
        for batch in batches:
            rows: list[Any] = []
            names = ("partition", "key", "value", "timestamp_ms", "format")
            for partition, key, value, timestamp, form in zip(
                *(batch.column(name).to_pylist() for name in names), strict=True
            ):
                make = makers.get(partition)
                if make is None:
                    make = makers[partition] = row_function(self.layout, partition)
                rows.append(make(key, value, timestamp, None if form is None else [(_FORMAT, form)]))
            yield columns.batch(rows).columns


def decoder_of(builder: StoreBuilder[Any, Any], layout: StoreLayout, topic: str) -> ColumnDecoder:
    """Return the decoder of a store.

    Args:
        builder: of the store, with its serdes.
        layout: of the store.
        topic: real name of its changelog.

    Raises:
        ConfigError: the store has no serde.
    """
    key, value = builder._serdes(topic)
    packed = pack(key, value)
    reason = None if packed is not None else f"its serdes {key} and {value} cannot be sent to Spark's executors"
    return ColumnDecoder(builder.name, layout, getattr(builder, "window_size_ms", None), packed, reason)
