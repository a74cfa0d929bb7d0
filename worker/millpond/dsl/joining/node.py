"""The part of a stream-stream join in the graph: both sides, the node that merges their results, and the stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.dsl.graph import GraphNode, OperatorNode
from millpond.dsl.operators.conversion import PassThrough
from millpond.dsl.operators.window_join.windowed import KeepForJoin
from millpond.errors import TopologyError
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
    """A join of two streams. It has the name of the processor that merges the results of both sides.

    A join of a stream with itself (`is_self_join`) can be written with one store. The rewrite
    `single.store.self.join` of `topology.optimization` visits the graph before it is written, after equal sources were
    merged and repartition topics too, and calls `use_single_store()` of each such node. As in Kafka Streams, that is
    for left and outer joins, too, which then have the results of an inner join.

    Attributes:
        single_store: whether the node is written as one processor over the left side's store.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        name: str,
        this: JoinSide,
        other: JoinSide,
        *,
        own: Callable[[], Body],
        shared: StoreBuilder[Any, Any] | None = None,
        relaxed_null_key: bool = False,
    ) -> None:
        super().__init__(name, relaxed_null_key=relaxed_null_key)
        self.this = this
        self.other = other
        self.own = own
        self.shared = shared
        self.single_store: bool = False

    @property
    def is_self_join(self) -> bool:
        """Whether both sides have the same parent."""
        return len(self.parents) == 1

    def use_single_store(self) -> None:
        """Write the join of a stream with itself as one processor over one store.

        The node that puts the right side's records into their store is removed from the graph.

        Raises:
            TopologyError: the sides have different parents.
        """
        if not self.is_self_join:
            raise TopologyError(f"'{self.name}' joins two different streams, so it needs a store for each of them.")
        (parent,) = self.parents
        for child in list(parent.children):
            if child.name == self.other.windowed and isinstance(child, OperatorNode):
                parent.disown(child)
        self.single_store = True

    def write(self, topology: Topology) -> None:
        """Add the processors of both sides, the one that merges their results, and the stores."""
        this, other = self.this, self.other
        if self.single_store:
            topology.add_body(self.name, self.own(), [this.windowed])
            topology.add_state_store(this.store, this.windowed, self.name)
            return
        topology.add_body(this.join, this.body(), [this.windowed])
        topology.add_body(other.join, other.body(), [other.windowed])
        topology.add_body(self.name, PassThrough(), [this.join, other.join])
        topology.add_state_store(this.store, this.windowed, other.join)
        topology.add_state_store(other.store, other.windowed, this.join)
        if self.shared is not None:
            topology.add_state_store(self.shared, this.join, other.join)


def windowed_node(name: str, store: str, join: str) -> OperatorNode:
    """Return the node that puts one side's records into its store. The join adds the store."""
    return OperatorNode(name, lambda: KeepForJoin(store, join))
