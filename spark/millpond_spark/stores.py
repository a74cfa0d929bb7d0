"""The stores in a snapshot and their changelogs, from the topology and the existing topics. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millpond.errors import SnapshotError, TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.restoring.global_tables import global_layout, reason_not_plain
from millpond.runtime.topics.plan import plan_with, summary
from millpond.serdes import Serde
from millpond.snapshots.layouts import StoreLayout, covered, layout_of
from millpond.topology import GlobalStore, Topology

__all__ = ("ChangelogStore", "PackedSerdes", "Stores", "stores_of")


PackedSerdes = tuple[bytes, bytes]
"""The serdes of keys and values in the topic, and those in the store; see `packed_serdes.pack`."""


class ChangelogStore(NamedTuple):
    """A store that the snapshot includes."""

    name: str
    layout: StoreLayout
    topic: str
    """The real name of its changelog."""
    partitions: int
    """The number of changelog partitions that tasks restore from: the first ones."""
    is_input: bool
    """Whether an input topic serves as the changelog; then rows end at the committed offsets."""
    subtopology: int = 0
    """The id of its subtopology, whose tasks commit their stores together."""
    serdes: PackedSerdes | None = None
    """The serdes of a global store. None for other stores, whose changelogs have the bytes of their rows."""
    schema_ids: bool = False
    """Whether its records are input that may have the ids of their schemas in headers, where rows cannot have them."""


class Stores(NamedTuple):
    """The stores of an application."""

    topology: str
    """The hash of the topology."""
    logged: tuple[ChangelogStore, ...]
    """The included stores, ordered by name."""
    builders: Mapping[str, Any]
    """Store -> its builder."""
    skipped: Mapping[str, str]
    """Store that is not included -> the reason, a clause whose subject is the store."""


def stores_of(topology: Topology, existing: Mapping[str, int], config: Config) -> Stores:
    """Return the stores of an application.

    Args:
        topology: the topology of the application.
        existing: the partition count of every topic in the cluster.
        config: the configuration of the application.

    Raises:
        TopicError: a source topic or a changelog does not exist, or a changelog has another number of partitions.
        SnapshotError: no store has a changelog.
        StateError: a store is of a kind that snapshots do not cover.
    """
    plan = plan_with(topology, existing, config)
    logged: list[ChangelogStore] = []
    builders: dict[str, Any] = {}
    skipped: dict[str, str] = {}
    for definition in topology.global_stores:
        builder: Any = definition.store
        name = builder.name
        serdes = _global_serdes(definition, config)
        if isinstance(serdes, str):
            skipped[name] = serdes
            continue
        builders[name] = builder
        topic = definition.source.topics[0]
        logged.append(
            ChangelogStore(
                name, global_layout(definition, config.default_key_serde, config.default_value_serde), topic,
                plan.partitions_of(topic), is_input=False, subtopology=definition.id, serdes=serdes,
                schema_ids=_has_schema_ids(definition.source.key, definition.source.value, topic, config),
            )
        )  # fmt: skip
    for subtopology in plan.subtopologies:
        partitions = sum(task.subtopology == subtopology.id for task in plan.tasks)
        inputs = {
            topic for task, topics in plan.tasks.items() if task.subtopology == subtopology.id for topic in topics
        }
        stores: tuple[Any, ...] = subtopology.stores
        for builder in stores:
            reason = _reason_to_skip(builder)
            if reason is not None:
                skipped[builder.name] = reason
                continue
            topic = plan.changelogs[subtopology.id][builder.name]
            found = existing.get(topic)
            if found is None:
                raise TopicError(
                    f"changelog '{topic}' of store '{builder.name}' does not exist: check 'application.id' "
                    f"('{config.application_id}') and 'bootstrap.servers', or run the application once."
                )
            is_input = topic in inputs
            if found != partitions and not (is_input and found > partitions):
                raise TopicError(
                    f"changelog '{topic}' has {found} partitions, but the topology needs {partitions}: check that the "
                    "topology is the one that the application runs with."
                )
            count = min(found, partitions)
            builders[builder.name] = builder
            schema_ids = is_input and _has_schema_ids(builder.key, builder.value, topic, config)
            logged.append(
                ChangelogStore(
                    builder.name, layout_of(builder), topic, count, is_input, subtopology.id, schema_ids=schema_ids
                )
            )
    if not logged:
        reasons = "".join(f"; store '{name}' {reason}" for name, reason in sorted(skipped.items()))
        raise SnapshotError(f"the application has no store that a snapshot could include{reasons}.")
    return Stores(summary(plan).hash, tuple(sorted(logged)), builders, skipped)


def _has_schema_ids(key: Serde[Any] | None, value: Serde[Any] | None, topic: str, config: Config) -> bool:
    serdes = key or config.default_key_serde, value or config.default_value_serde
    return any(each is not None and each.for_topic(topic).header is not None for each in serdes)


def _reason_to_skip(builder: Any) -> str | None:
    if not covered(builder):
        return "is of a kind that snapshots do not cover"
    return "has no changelog" if not builder.logging and builder.source_topic is None else None


def _global_serdes(definition: GlobalStore, config: Config) -> PackedSerdes | str:
    """Return the serdes of a global store, or the reason why the snapshot does not include it."""
    reason = reason_not_plain(definition, config.default_timestamp_extractor)
    if reason is not None:
        return f"{reason}: every worker reads its topic"
    from .packed_serdes import pack  # needs Spark, and most applications have no global store

    source = definition.source
    store: Any = definition.store
    topic = source.topics[0]
    key, value = config.default_key_serde, config.default_value_serde
    packed = [
        pack(own_key, own_value)
        for own_key, own_value in (
            (
                _for_topic(source.key or key, topic, is_key=True),
                _for_topic(source.value or value, topic, is_key=False),
            ),
            (store.key or key, store.value or value),
        )
        if own_key is not None and own_value is not None
    ]
    if len(packed) < 2 or packed[0] is None or packed[1] is None:
        return "is a global store whose serdes cannot be sent to Spark's executors: every worker reads its topic"
    return packed[0], packed[1]


def _for_topic(serde: Serde[Any] | None, topic: str, *, is_key: bool) -> Serde[Any] | None:
    return None if serde is None else serde.for_topic(topic, is_key)
