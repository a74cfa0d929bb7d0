"""The body that forwards the records of one side of a stream-stream join, and then puts them into the side's store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.dsl.operators.guard import FATAL
from millpond.topology import NodeContext, StreamForward

__all__ = ("KeepForJoin",)


@dataclass(frozen=True, slots=True)
class KeepForJoin:
    """A body that forwards each record to the join, and then puts it into the window store of its side.

    So a record never joins itself. Records without a key are not put: no record can join them. Records that are too
    late for the store are counted as late, since no later record can join them.
    """

    store: str
    join: str
    """The name of the join."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        serialize, append = store.serialize_key, store.append
        forward, failed, unjoined, join = node.forward, node.failed, node.unjoined, self.join
        store.on_not_kept = lambda late_ms: unjoined(join, late_ms)

        def keep(key: Any, value: Any, timestamp: int) -> None:
            forward(key, value, timestamp)
            if key is None:
                return
            try:
                append(serialize(key), key, value, timestamp, timestamp)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - the serdes are the user's
                failed(error, key, value, timestamp)

        return keep
