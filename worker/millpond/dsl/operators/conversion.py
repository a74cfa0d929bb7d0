"""Bodies that pass records on, and the conversion of a table's changes to a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.state.stores.flush_columns import columns_taker, with_columns
from millpond.topology import Forward, NodeContext, StreamForward, TableForward

__all__ = ("DropNullKeys", "PassThrough", "ToStream")


@dataclass(frozen=True, slots=True)
class PassThrough:
    """A body that forwards every record. It costs nothing, because the parent calls the children directly."""

    def bind(self, node: NodeContext) -> Forward:
        """Return the function that calls the node's children."""
        return node.forward


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """A body that drops records without a key before a repartition topic, where they could go to any partition.

    Kafka Streams does not count them as dropped.
    """

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        forward, dropped = node.forward, node.dropped

        def drop_null_keys(key: Any, value: Any, timestamp: int) -> None:
            if key is None:
                return dropped(Drop.NULL_KEY, counted=False)
            forward(key, value, timestamp)

        return drop_null_keys


@dataclass(frozen=True, slots=True)
class ToStream:
    """A body that forwards the new values of a table's changes."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each record."""
        forward = node.forward

        def to_stream(key: Any, new: Any, old: Any, timestamp: int) -> None:
            forward(key, new, timestamp)

        return with_columns(to_stream, columns_taker(forward))
