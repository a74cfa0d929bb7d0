"""The body of filter and filter_not of a table: a row that no longer passes becomes a deletion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, TableForward

from .guard import FATAL
from .versioned.updates import update_functions

__all__ = ("FilterTable",)


@dataclass(frozen=True, slots=True)
class FilterTable:
    """A body that forwards rows with a true `predicate(key, value)` (with `negate`, false) and deletes the others.

    With old values, a row that passed neither before nor now is not forwarded, unless the table above is versioned: its
    deletion is a version too.
    """

    predicate: Callable[[Any, Any], object]
    negate: bool
    store: str | None
    send_old: bool
    versioned: bool = False
    """Whether the table above is versioned (KIP-914)."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        if self.store is not None:
            return self._materialized(node, self.store)
        predicate, negate, send_old = self.predicate, self.negate, self.send_old
        forward, failed, skip = node.forward, node.failed, not self.versioned

        def filter_change(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                if send_old:
                    if old is not None and bool(predicate(key, old)) is negate:
                        old = None
                    if new is None and old is None and skip:
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
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        forwarding = not store.caching
        if store.caching:
            store.on_flush(forward)
        needs_old = send_old or store.caching
        skip = send_old and not self.versioned

        def filter_and_store(key: Any, new: Any, old: Any, timestamp: int) -> None:
            try:
                if new is not None and bool(predicate(key, new)) is negate:
                    new = None
                raw = serialize(key)
                before = entry(raw)[0] if needs_old else None
                if skip and new is None and before is None:
                    return
                stage(raw, key, new, timestamp, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            if forwarding:
                forward(key, new, before, timestamp)

        return filter_and_store
