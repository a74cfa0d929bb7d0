"""The body of suppress: changes are held back until stream time has reached their end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.errors import ProcessingFailed
from millpond.state import Pending, RecordContext
from millpond.topology import NodeContext, TableForward

from .guard import FATAL
from .lookup import Get, Lookup, TimedGet

__all__ = ("SuppressTable", "SuppressedLookup")

STREAM_TIME = "stream_time"


@dataclass(frozen=True, slots=True)
class SuppressTable:
    """A body that buffers the latest change of each key, and forwards it at its time plus `wait_ms` in stream time.

    Its time is the end of its window for `final` results, else the timestamp of the first buffered change of the key.
    Final deletions are not forwarded, because nothing was forwarded before them.
    """

    store: str
    final: bool
    wait_ms: int
    max_records: int | None
    max_bytes: int | None
    emit_when_full: bool
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> TableForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each change."""
        buffer = node.store(self.store)
        serialize, put, evict_while = buffer.serialize_key, buffer.put, buffer.evict_while
        task, forward, failed, name = node.task, node.forward, node.failed, node.name
        final, wait, emit_when_full = self.final, self.wait_ms, self.emit_when_full
        unbounded = self.max_records is None and self.max_bytes is None
        max_records = float("inf") if self.max_records is None else self.max_records
        max_bytes = float("inf") if self.max_bytes is None else self.max_bytes
        stream_time = -1

        def due() -> bool:
            return bool(buffer.min_timestamp + wait <= stream_time)

        def full() -> bool:
            return bool(buffer.num_records > max_records or buffer.buffer_size > max_bytes)

        def emit(pending: Pending[Any, Any]) -> None:
            if pending.new is None and final:
                return
            before = task.headers, task.origin
            task.headers, task.origin = pending.context.headers, pending.context
            try:
                forward(pending.key, pending.new, pending.old, pending.context.timestamp)
            finally:
                task.headers, task.origin = before

        def unreadable(error: Exception, timestamp: int) -> None:
            failed(error, None, None, timestamp)

        def suppress(key: Any, new: Any, old: Any, timestamp: int) -> None:
            nonlocal stream_time
            if timestamp > stream_time:
                stream_time = timestamp
            context = RecordContext(timestamp, task.offset, task.partition, task.topic, task.headers)
            try:
                put(key.end_ms if final else timestamp, serialize(key), key, new, old, context)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            if buffer.min_timestamp + wait <= stream_time:
                evict_while(due, emit, unreadable)
            if unbounded or not full():
                return
            if not emit_when_full:
                raise ProcessingFailed(
                    f"'{name}' may hold back {_limits(self)} but has to hold back {buffer.num_records} records with "
                    f"{buffer.buffer_size} bytes; raise the limit, leave it out, or shorten the windows or their grace."
                )
            evict_while(full, emit, unreadable)

        def waiting() -> tuple[int, int, int] | None:
            return (buffer.num_records, buffer.min_timestamp + wait, stream_time) if buffer.num_records else None

        if final:
            node.holds_back(self.store, waiting)
        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        return suppress


def _limits(body: SuppressTable) -> str:
    limits = [(body.max_records, "records"), (body.max_bytes, "bytes")]
    return " and ".join(f"{limit} {what}" for limit, what in limits if limit is not None)


@dataclass(frozen=True, slots=True)
class SuppressedLookup:
    """A lookup of the last sent value of a key whose change is held back; for other keys, of the table above."""

    store: str
    above: Lookup

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        buffer = node.store(self.store)
        serialize, prior_value, above = buffer.serialize_key, buffer.prior_value, self.above.bind(node)

        def get(key: Any) -> Any:
            held_back, value = prior_value(serialize(key))
            return value if held_back else above(key)

        return get

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key; the time of a value before a held back one is -1."""
        buffer = node.store(self.store)
        serialize, prior_value, above = buffer.serialize_key, buffer.prior_value, self.above.bind_timed(node)

        def get(key: Any) -> tuple[Any, int]:
            held_back, value = prior_value(serialize(key))
            return (value, -1) if held_back else above(key)

        return get
