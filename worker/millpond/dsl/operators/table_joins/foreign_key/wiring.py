"""What all bodies of one join by a foreign key share: its names, and its serdes for internal topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.serdes import Serde
from millpond.topology import NodeContext, StreamPartitioner, decorate

__all__ = ("Wiring",)


@dataclass(frozen=True, slots=True)
class Wiring:
    """The names and the serdes of one join. Topics are without the application's prefix."""

    registrations: str
    """The topic of subscriptions. With the endings -pk, -fk and -vh it is also what serdes get as their topic for left
    keys and foreign keys in the store, and for the left values that are hashed."""
    responses: str
    """The topic of responses."""
    store: str
    """The store of subscriptions."""
    key: Serde[Any] | None
    """Serde of the left table's keys; None for the default one. So for the others."""
    value: Serde[Any] | None
    """Serde of the left table's values."""
    other_key: Serde[Any] | None
    """Serde of the right table's keys, which are the foreign keys."""
    other_value: Serde[Any] | None
    """Serde of the right table's values."""
    partitioner: StreamPartitioner | None
    """Chooses the partitions of responses."""
    other_partitioner: StreamPartitioner | None
    """Chooses the partitions of subscriptions."""
    shown: str
    """The join, for error messages."""
    tasks: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the two ends of the join share in one task, by its context; see `resubscribing`."""

    @property
    def left_keys(self) -> str:
        """The topic that serdes get for left keys in subscriptions."""
        return f"{self.registrations}-pk"

    @property
    def foreign_keys(self) -> str:
        """The topic that serdes get for foreign keys in the store."""
        return f"{self.registrations}-fk"

    def left_key(self, node: NodeContext, topic: str) -> Serde[Any]:
        """Return the serde of left keys in a topic."""
        return node.key_serde(self.key, decorate(node.task.application_id, topic))

    def left_value(self, node: NodeContext) -> Serde[Any]:
        """Return the serde with which left values are hashed."""
        return node.value_serde(self.value, decorate(node.task.application_id, f"{self.registrations}-vh"))

    def foreign_key(self, node: NodeContext, topic: str) -> Serde[Any]:
        """Return the serde of foreign keys in a topic."""
        return node.key_serde(self.other_key, decorate(node.task.application_id, topic))

    def right_value(self, node: NodeContext) -> Serde[Any]:
        """Return the serde of right values in responses."""
        return node.value_serde(self.other_value, decorate(node.task.application_id, self.responses))

    def wrong_key(self, key: object, serde: Serde[Any], error: Exception) -> str:
        """Return the message for a foreign key that cannot be serialized."""
        kind = type(key).__name__
        return (
            f"{self.shown} got a foreign key of type {kind} from its on=, but the keys of the table that it joins are "
            f"of serde {serde.name}, which cannot encode it ({type(error).__name__}); return a key as that table has "
            "them, or None for no row"
        )
