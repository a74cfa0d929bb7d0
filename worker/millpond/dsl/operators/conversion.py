"""Between edges: nodes that only pass records on, and the step from a table's changes to a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millpond.state.stores.flush_columns import columns_taker, with_columns
from millpond.topology import Forward, NodeContext, StreamForward, TableForward

__all__ = ("DropNullKeys", "PassThrough", "ToStream")


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Forwards everything; costs nothing, because it is its children."""

    def bind(self, node: NodeContext) -> Forward:
        """The children themselves."""
        return node.forward


@dataclass(frozen=True, slots=True)
class DropNullKeys:
    """Keeps records without a key out of a repartition topic, where they would land anywhere."""

    def bind(self, node: NodeContext) -> StreamForward:
        """The task's function."""
        forward = node.forward

        def drop_null_keys(key: Any, value: Any, timestamp: int) -> None:
            if key is not None:
                forward(key, value, timestamp)

        return drop_null_keys


@dataclass(frozen=True, slots=True)
class ToStream:
    """A table's changes as a stream of its new values."""

    def bind(self, node: NodeContext) -> TableForward:
        """The task's function."""
        forward = node.forward

        def to_stream(key: Any, new: Any, old: Any, timestamp: int) -> None:
            forward(key, new, timestamp)

        return with_columns(to_stream, columns_taker(forward))
