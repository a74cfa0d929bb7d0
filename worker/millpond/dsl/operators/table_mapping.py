"""The body of map_values of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, TableForward

from .guard import FATAL
from .versioned.updates import update_functions

__all__ = ("MapTableValues",)


@dataclass(frozen=True, slots=True)
class MapTableValues:
    """A body that maps each value by `mapper(value)`, or by `mapper(key, value)` with `with_key`; deletions stay."""

    mapper: Callable[..., Any]
    with_key: bool
    store: str | None
    send_old: bool

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        if self.store is not None:
            return self._materialized(node, self.store)
        mapper, with_key, send_old = self.mapper, self.with_key, self.send_old
        forward, failed = node.forward, node.failed

        def map_change(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                mapped = None if new is None else mapper(key, new) if with_key else mapper(new)
                before = None
                if send_old and old is not None:
                    before = mapper(key, old) if with_key else mapper(old)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            forward(key, mapped, before, timestamp)

        return map_change

    def _materialized(self, node: NodeContext, name: str) -> TableForward:
        mapper, with_key = self.mapper, self.with_key
        store = node.store(name)
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        forwarding = not store.caching
        if store.caching:
            store.on_flush(forward)
        needs_old = self.send_old or store.caching

        def map_and_store(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                mapped = None if new is None else mapper(key, new) if with_key else mapper(new)
                raw = serialize(key)
                before = entry(raw)[0] if needs_old else None
                stage(raw, key, mapped, timestamp, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            if forwarding:
                forward(key, mapped, before, timestamp)

        return map_and_store
