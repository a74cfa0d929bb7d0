"""The body of map_batches: one call of the user's function for all records that a task has at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.topology import NodeContext, StreamForward

from .held import HeldRecord, HeldRecords

__all__ = ("MapBatches",)


@dataclass(frozen=True)
class MapBatches:
    """A body that replaces the values of a batch by the rows of `mapper(batch)`."""

    mapper: Callable[[Any], Any]
    batch: Callable[[Sequence[HeldRecord]], Any]
    """Makes the function's argument of records."""
    rows: Callable[[Any], Sequence[Any]]
    """Makes a sequence of values of the function's result."""
    max_rows: int
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        held, forward, max_rows = HeldRecords(node), node.forward, self.max_rows

        def end() -> None:
            records = held.take()
            if not records:
                return
            try:
                values = self._map(records)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                if len(records) == 1:
                    return held.failed(records[0], error)
                return self._one_by_one(records, held, forward)
            for record, value in zip(records, values, strict=True):
                held.run(record, forward, record.key, value, record.timestamp)

        def hold(key: Any, value: Any, timestamp: int) -> None:
            if held.add(key, value, timestamp) >= max_rows:
                end()

        node.on_batch_end(end)
        return hold

    def _map(self, records: Sequence[HeldRecord]) -> Sequence[Any]:
        values = self.rows(self.mapper(self.batch(records)))
        if len(values) != len(records):
            raise ValueError(
                f"map_batches() needs one result for each row of the batch: the function returned {len(values)} for "
                f"{len(records)} rows"
            )
        return values

    def _one_by_one(self, records: Sequence[HeldRecord], held: HeldRecords, forward: StreamForward) -> None:
        """Map each record of a batch that failed alone, so that only those that fail go to the handler."""
        for record in records:
            try:
                (value,) = self._map([record])
            except Exception as error:  # noqa: BLE001 - user code raises anything
                held.failed(record, error)
            else:
                held.run(record, forward, record.key, value, record.timestamp)
