"""The body of a join of a stream with a versioned table that waits for late rows of the table (KIP-923)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Lookup
from millpond.dsl.operators.stream_join import join_as_of
from millpond.state import RecordContext, Waiting
from millpond.topology import NodeContext, StreamForward

__all__ = ("JoinTableWithGrace",)

STREAM_TIME = "stream_time"
SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class JoinTableWithGrace:
    """A body that holds each record back for the grace period, and then joins it with the row at the record's time.

    A record whose grace period has passed already is joined at once, and so is a record without a key in a left join.
    """

    table: Lookup
    combine: Callable[..., Any]
    with_key: bool
    left: bool
    store: str
    grace_ms: int
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        buffer = node.store(self.store)
        serialize, put, evict_until = buffer.serialize_key, buffer.put, buffer.evict_until
        join = join_as_of(node, self.table, self.combine, with_key=self.with_key, left=self.left)
        task, failed, grace = node.task, node.failed, self.grace_ms
        stream_time = -1

        def emit(waiting: Waiting[Any, Any]) -> None:
            key, value, context = waiting
            before = task.headers, task.origin
            task.headers, task.origin = context.headers, context
            try:
                join(key, value, context.timestamp)
            finally:
                task.headers, task.origin = before

        def unreadable(error: Exception, timestamp: int) -> None:
            failed(error, None, None, timestamp)

        def join_later(key: Any, value: Any, timestamp: int) -> None:
            nonlocal stream_time
            if key is None or value is None or timestamp < stream_time - grace:
                return join(key, value, timestamp)
            try:
                context = RecordContext(timestamp, task.offset, task.partition, task.topic, task.headers)
                put(serialize(key), key, value, context)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if timestamp > stream_time:
                stream_time = timestamp
            evict_until(stream_time - grace, emit, unreadable)

        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        sequence = node.remember(SEQUENCE, lambda: int(buffer.sequence))
        if sequence is not None:
            buffer.sequence = sequence
        return join_later
