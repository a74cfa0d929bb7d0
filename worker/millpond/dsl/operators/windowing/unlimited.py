"""The body of count, reduce and aggregate of a stream by key, from a start on and without an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.windows import UnlimitedWindows
from millpond.serdes import Windowed
from millpond.topology import NodeContext, StreamForward

__all__ = ("AggregateUnlimitedWindows",)


@dataclass(frozen=True, slots=True)
class AggregateUnlimitedWindows:
    """A body that calls `aggregator(key, value, aggregate)` per key, starting with `initializer()`.

    Records before the start of the window are ignored, and not counted as dropped.
    """

    store: str
    windows: UnlimitedWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    send_old: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store, initializer, aggregator = node.store(self.store), self.initializer, self.aggregator
        serialize, entry, stage = store.serialize_key, store.entry, store.stage
        forward, failed, dropped = node.forward, node.failed, node.dropped
        forwarding = not store.caching
        copy_old = self.send_old and forwarding and not store.value_serde.immutable
        if store.caching:
            store.on_flush(forward)
        start, end = self.windows.start_ms, self.windows.size_ms

        def aggregate(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                return dropped(Drop.NULL_KEY)
            if timestamp < start:
                return None
            try:
                raw = serialize(key)
                old, latest = entry(raw, start)
                new = aggregator(key, value, initializer() if old is None else old)
                if old is not None and copy_old:
                    old = entry(raw, start)[0]
                latest = timestamp if old is None or latest < timestamp else latest
                # The store keeps no timestamp of a deletion: it gets that of its record.
                stage(raw, start, key, new, timestamp if new is None else latest, old)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(Windowed(key, start, end), new, old, latest)
            return None

        return aggregate
