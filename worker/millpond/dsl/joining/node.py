"""The part of a stream-stream join in the graph: both sides, the node that merges their results, and the stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.dsl.graph import GraphNode, OperatorNode
from millpond.dsl.operators.conversion import PassThrough
from millpond.dsl.operators.window_join.windowed import KeepForJoin
from millpond.state import StoreBuilder, WindowStoreBuilder
from millpond.topology import Body, Topology

__all__ = ("JoinSide", "StreamJoinNode", "windowed_node")


@dataclass(frozen=True)
class JoinSide:
    """One side of a stream-stream join."""

    windowed: str
    """The name of the processor that puts the side's records into its store."""
    join: str
    """The name of the processor that joins them with the other side's."""
    store: WindowStoreBuilder[Any, Any]
    """The builder of the store of this side's records."""
    body: Callable[[], Body]
    """Makes the body of the processor that joins."""


class StreamJoinNode(GraphNode):
    """A join of two streams. It has the name of the processor that merges the results of both sides."""

    def __init__(
        self,
        name: str,
        this: JoinSide,
        other: JoinSide,
        *,
        shared: StoreBuilder[Any, Any] | None = None,
        relaxed_null_key: bool = False,
    ) -> None:
        super().__init__(name, relaxed_null_key=relaxed_null_key)
        self.this = this
        self.other = other
        self.shared = shared

    def write(self, topology: Topology) -> None:
        """Add the processors of both sides, the one that merges their results, and the stores."""
        this, other = self.this, self.other
        topology.add_body(this.join, this.body(), [this.windowed])
        topology.add_body(other.join, other.body(), [other.windowed])
        topology.add_body(self.name, PassThrough(), [this.join, other.join])
        topology.add_state_store(this.store, this.windowed, other.join)
        topology.add_state_store(other.store, other.windowed, this.join)
        if self.shared is not None:
            topology.add_state_store(self.shared, this.join, other.join)


def windowed_node(name: str, store: str) -> OperatorNode:
    """Return the node that puts one side's records into its store. The join adds the store."""
    return OperatorNode(name, lambda: KeepForJoin(store))
