"""The bodies of count, reduce and aggregate of a grouped stream.

All three read the entry of the key, stage the new one, and forward the change. If the store is caching, the store
forwards one change per key at flush instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import null_part
from millpond.topology import NodeContext, StreamForward

from .guard import FATAL
from .versioned.updates import is_versioned, update_functions

__all__ = ("AggregateStream", "CountStream", "ReduceStream")


@dataclass(frozen=True, slots=True)
class CountStream:
    """A body that counts the records of each key, without those that have no value."""

    store: str

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry
        failed, dropped = node.failed, node.dropped
        stage, forward = update_functions(node, store)
        if not is_versioned(store):
            stage = store.stage_count
        forwarding = not store.caching
        if store.caching:
            store.on_flush(forward)

        def count(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                return dropped(null_part(key))
            try:
                raw = serialize(key)
                old, old_timestamp = entry(raw)
                if old is None:
                    new = 1
                else:
                    new = old + 1
                    if old_timestamp > timestamp:
                        timestamp = old_timestamp
                stage(raw, key, new, timestamp, old)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, new, old, timestamp)

        return count


@dataclass(frozen=True, slots=True)
class ReduceStream:
    """A body that calls `reducer(aggregate, value)` per key; the first value of a key is its first aggregate."""

    store: str
    reducer: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store, reducer = node.store(self.store), self.reducer
        serialize, entry = store.serialize_key, store.entry
        failed, dropped = node.failed, node.dropped
        stage, forward = update_functions(node, store)
        timed = is_versioned(store)
        forwarding = not store.caching
        # The reducer may change the old aggregate in place; children get a second copy of it.
        copy_old = self.send_old and forwarding and not store.value_serde.immutable
        if store.caching:
            store.on_flush(forward)

        def reduce(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                return dropped(null_part(key))
            try:
                raw = serialize(key)
                old, old_timestamp = entry(raw)
                if old is None:
                    new = value
                    stage(raw, key, new, timestamp, None)
                else:
                    new = reducer(old, value)
                    if copy_old:
                        old = entry(raw)[0]
                    # A store without versions keeps no timestamp of a deletion: it gets that of its record.
                    stage(
                        raw,
                        key,
                        new,
                        old_timestamp if old_timestamp > timestamp and (new is not None or timed) else timestamp,
                        old,
                    )
                    if old_timestamp > timestamp:
                        timestamp = old_timestamp
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, new, old, timestamp)

        return reduce


@dataclass(frozen=True, slots=True)
class AggregateStream:
    """A body that calls `aggregator(key, value, aggregate)` per key, starting with `initializer()`."""

    store: str
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store, initializer, aggregator = node.store(self.store), self.initializer, self.aggregator
        serialize, entry = store.serialize_key, store.entry
        failed, dropped = node.failed, node.dropped
        stage, forward = update_functions(node, store)
        timed = is_versioned(store)
        forwarding = not store.caching
        # The aggregator may change the old aggregate in place; children get a second copy of it.
        copy_old = self.send_old and forwarding and not store.value_serde.immutable
        if store.caching:
            store.on_flush(forward)

        def aggregate(key: Any, value: Any, timestamp: int) -> None:
            if key is None or value is None:
                return dropped(null_part(key))
            try:
                raw = serialize(key)
                old, old_timestamp = entry(raw)
                if old is None:
                    new = aggregator(key, value, initializer())
                    stage(raw, key, new, timestamp, None)
                else:
                    new = aggregator(key, value, old)
                    if copy_old:
                        old = entry(raw)[0]
                    # A store without versions keeps no timestamp of a deletion: it gets that of its record.
                    stage(
                        raw,
                        key,
                        new,
                        old_timestamp if old_timestamp > timestamp and (new is not None or timed) else timestamp,
                        old,
                    )
                    if old_timestamp > timestamp:
                        timestamp = old_timestamp
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, new, old, timestamp)

        return aggregate
