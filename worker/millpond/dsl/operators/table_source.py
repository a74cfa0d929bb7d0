"""The bodies of source tables: records of a topic or of a stream as updates of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.drops import Drop
from millpond.topology import NodeContext, StreamForward

from .guard import FATAL
from .versioned.updates import update_functions

__all__ = ("MaterializedSource", "PassingSource")


@dataclass(frozen=True, slots=True)
class PassingSource:
    """A source table without a store: every record is a change, and old values are not known."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        forward, dropped = node.forward, node.dropped

        def update(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                return dropped(Drop.NULL_KEY)
            forward(key, value, None, timestamp)

        return update


@dataclass(frozen=True, slots=True)
class MaterializedSource:
    """A source table with a store; None deletes. The last record of a key by offset wins, whatever its timestamp.

    In a versioned store the record with the largest timestamp wins, and the others become older versions.
    """

    store: str
    send_old: bool
    keeps_newest: ClassVar[bool] = True
    """Whether the store has the newest value of each key of the topic, and nothing else."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        serialize, entry = store.serialize_key, store.entry
        stage, forward = update_functions(node, store)
        failed, dropped = node.failed, node.dropped
        forwarding = not store.caching
        needs_old = self.send_old or store.caching
        if store.caching:
            store.on_flush(forward)

        def update(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                return dropped(Drop.NULL_KEY)
            try:
                raw = serialize(key)
                old = entry(raw)[0] if needs_old else None
                stage(raw, key, value, timestamp, old)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if forwarding:
                forward(key, value, old, timestamp)

        return update
