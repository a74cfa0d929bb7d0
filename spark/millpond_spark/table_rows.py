"""Decode the rows of a store into the columns of its table. Runs in executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millpond.snapshots.layouts import StoreLayout, row_function
from millpond.snapshots.store_columns import StoreColumns
from millpond.state.builders import StoreBuilder, store_serdes
from millpond.state.formats import BUFFER_HEADERS
from millpond.state.rows import RowOf

from .packed_serdes import pack, unpack

__all__ = ("ColumnDecoder", "decoder_of")

_FORMAT = BUFFER_HEADERS[0][0]


@dataclass(frozen=True)
class ColumnDecoder:
    """The decoder of one store's rows; a function for `DataFrame.mapInArrow`."""

    store: str
    layout: StoreLayout
    window_size_ms: int | None
    """The window size of a window store, in ms."""
    serdes: bytes | None
    """The packed serdes of keys and values, see `packed_serdes.pack`; None to keep bytes."""
    reason: str | None
    """The reason why bytes are kept, a clause; None when they are decoded."""

    def columns(self) -> StoreColumns:
        """Return the store's columns.

        Raises:
            SnapshotError: this executor cannot import the application's modules.
        """
        if self.serdes is None:
            return StoreColumns(self.layout, window_size_ms=self.window_size_ms)
        key, value = unpack(self.serdes, self.store)
        return StoreColumns(self.layout, key=key, value=value, window_size_ms=self.window_size_ms)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode batches with the columns of `reduce.live_rows`; yield batches with the store's columns."""
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
        builder: the builder of the store, with its serdes.
        layout: the layout of the store.
        topic: the real name of its changelog.

    Raises:
        ConfigError: a serde of the store is missing.
    """
    key, value = store_serdes(builder, topic)
    packed = pack(key, value)
    reason = None if packed is not None else f"its serdes {key} and {value} cannot be sent to Spark's executors"
    return ColumnDecoder(builder.name, layout, getattr(builder, "window_size_ms", None), packed, reason)
