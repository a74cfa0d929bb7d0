"""The two ends of an operator with a key-value store: how it stages an update, and how it forwards the change.

Versioned stores take late updates too (KIP-914): an update that is not the latest of its key is forwarded with
`task.latest` false, for the operators below that ignore it, and one older than the history retention is rejected and
not forwarded. Stores without versions pay nothing for this: they get the plain functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.drops import Drop
from millpond.state import IS_LATEST, NOT_PUT, VersionedKeyValueStore
from millpond.topology import NodeContext, TableForward

__all__ = ("Stage", "is_versioned", "only_latest", "update_functions")

Stage = Callable[[bytes, Any, Any, int, Any], object]
"""f(serialised key, key, new value, timestamp in ms, old value)."""


def is_versioned(store: object) -> bool:
    """Return whether a store is versioned, and so keeps the timestamps of deletions."""
    return isinstance(store, VersionedKeyValueStore)


def update_functions(node: NodeContext, store: Any) -> tuple[Stage, TableForward]:
    """Return the functions that stage an update, and that forward it right afterwards."""
    if not is_versioned(store):
        return store.stage, node.forward
    task, children, dropped, put = node.task, node.forward, node.dropped, store.stage
    valid_to = IS_LATEST

    def stage(raw_key: bytes, key: Any, value: Any, timestamp: int, old: Any) -> None:
        nonlocal valid_to
        valid_to = put(raw_key, key, value, timestamp, old)

    def forward(key: Any, new: Any, old: Any, timestamp: int) -> None:
        if valid_to == NOT_PUT:
            return dropped(Drop.EXPIRED)
        before = task.latest
        task.latest = valid_to == IS_LATEST
        try:
            children(key, new, old, timestamp)
        finally:
            task.latest = before

    return stage, forward


def only_latest(node: NodeContext, update: TableForward) -> TableForward:
    """Return a function that drops and counts the updates of a versioned table that are not the latest of their key."""
    task, dropped = node.task, node.dropped

    def update_if_latest(key: Any, new: Any, old: Any, timestamp: int) -> None:
        if not task.latest:
            return dropped(Drop.OUTDATED)
        update(key, new, old, timestamp)

    return update_if_latest
