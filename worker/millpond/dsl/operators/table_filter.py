"""The body of filter and filter_not of a table: a row that no longer passes becomes a deletion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, TableForward

from .guard import FATAL

__all__ = ("FilterTable",)


@dataclass(frozen=True, slots=True)
class FilterTable:
    """A body that forwards rows with a true `predicate(key, value)` (with `negate`, false) and deletes the others.

    With old values, a row that passed neither before nor now is not forwarded.
    """

    predicate: Callable[[Any, Any], object]
    negate: bool
    store: str | None
    send_old: bool

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        if self.store is not None:
            return self._materialized(node, self.store)
        predicate, negate, send_old = self.predicate, self.negate, self.send_old
        forward, failed = node.forward, node.failed

        def filter_change(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                if send_old:
                    if old is not None and bool(predicate(key, old)) is negate:
                        old = None
                    if new is None and old is None:
                        return
                else:
                    old = None
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            forward(key, new, old, timestamp)

        return filter_change

    def _materialized(self, node: NodeContext, name: str) -> TableForward:
        predicate, negate, send_old = self.predicate, self.negate, self.send_old
        store = node.store(name)
        serialize, entry, stage = store.serialize_key, store.entry, store.stage
        forward, failed = node.forward, node.failed
        forwarding = not store.caching
        if store.caching:
            store.on_flush(forward)
        needs_old = send_old or store.caching

        def filter_and_store(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                raw = serialize(key)
                before = entry(raw)[0] if needs_old else None
                if send_old and new is None and before is None:
                    return
                stage(raw, key, new, timestamp, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            if forwarding:
                forward(key, new, before, timestamp)

        return filter_and_store
