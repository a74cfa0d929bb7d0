"""The bodies of aggregate, count and reduce of a regrouped table: subtract a row's old value, add its new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, StreamForward

from .guard import FATAL
from .versioned.updates import is_versioned, update_functions

__all__ = ("AggregateTable", "ReduceTable")


@dataclass(frozen=True, slots=True)
class AggregateTable:
    """A body that calls `subtractor` and then `adder`, both f(key, value, aggregate) -> aggregate."""

    store: str
    initializer: Callable[[], Any]
    adder: Callable[[Any, Any, Any], Any]
    subtractor: Callable[[Any, Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each change."""
        store, initializer, adder, subtractor = node.store(self.store), self.initializer, self.adder, self.subtractor
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        timeless = not is_versioned(store)
        forwarding = not store.caching
        copy_old = self.send_old and forwarding and not store.value_serde.immutable
        if store.caching:
            store.on_flush(forward)

        def aggregate(key: Any, value: Any, timestamp: int) -> None:
            try:
                new, old = value
                raw = serialize(key)
                before, latest = entry(raw)
                after = before
                applied = False
                if old is not None and before is not None:
                    after = subtractor(key, old, before)
                    applied = True
                if new is not None:
                    after = adder(key, new, initializer() if after is None else after)
                    applied = applied or before is not None
                if not applied or latest < timestamp:
                    latest = timestamp
                if copy_old and before is not None:
                    before = entry(raw)[0]
                # A store without versions keeps no timestamp of a deletion: it gets that of its record.
                stage(raw, key, after, timestamp if after is None and timeless else latest, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, after, before, latest)

        return aggregate


@dataclass(frozen=True, slots=True)
class ReduceTable:
    """A body that calls `subtractor` and then `adder`, both f(aggregate, value) -> aggregate."""

    store: str
    adder: Callable[[Any, Any], Any]
    subtractor: Callable[[Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each change."""
        store, adder, subtractor = node.store(self.store), self.adder, self.subtractor
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        timeless = not is_versioned(store)
        forwarding = not store.caching
        copy_old = self.send_old and forwarding and not store.value_serde.immutable
        if store.caching:
            store.on_flush(forward)

        def reduce(key: Any, value: Any, timestamp: int) -> None:
            try:
                new, old = value
                raw = serialize(key)
                before, latest = entry(raw)
                after = before
                applied = False
                if old is not None and before is not None:
                    after = subtractor(before, old)
                    applied = True
                if new is not None:
                    if after is None:
                        after = new
                    else:
                        after = adder(after, new)
                        applied = True
                if not applied or latest < timestamp:
                    latest = timestamp
                if copy_old and before is not None:
                    before = entry(raw)[0]
                # A store without versions keeps no timestamp of a deletion: it gets that of its record.
                stage(raw, key, after, timestamp if after is None and timeless else latest, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, after, before, latest)

        return reduce
