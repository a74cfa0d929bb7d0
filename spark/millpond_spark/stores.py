"""Which stores of an application a snapshot has, and where each is logged. Pure, from the topology and the topics there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millpond.errors import SnapshotError, TopicError
from millpond.runtime.config import Config
from millpond.runtime.plan import plan_with, summary
from millpond.snapshots.rows import StoreLayout, layout_of
from millpond.topology import Topology

__all__ = ("LoggedStore", "Stores", "stores_of")


class LoggedStore(NamedTuple):
    """A store that a snapshot has."""

    name: str
    layout: StoreLayout
    topic: str
    """Real name of its changelog."""
    partitions: int
    """Of the changelog that tasks restore from: the first ones."""
    is_input: bool
    """Whether an input topic doubles as changelog; then rows end where the application has committed."""


class Stores(NamedTuple):
    """The stores of an application."""

    topology: str
    """The topology's hash."""
    logged: tuple[LoggedStore, ...]
    """By name."""
    skipped: Mapping[str, str]
    """Store -> why a snapshot does not have it, a clause whose subject is the store."""


def stores_of(topology: Topology, existing: Mapping[str, int], config: Config) -> Stores:
    """Return the stores of an application.

    Args:
        topology: the application's.
        existing: partition count of every topic in the cluster.
        config: the application's configuration.

    Raises:
        TopicError: a source topic or a changelog does not exist, or a changelog has another number of partitions.
        SnapshotError: no store has a changelog.
        StateError: a store is of a kind that snapshots do not cover.
    """
    plan = plan_with(topology, existing, config)
    logged: list[LoggedStore] = []
    skipped = {
        each.store.name: "is a global store, which every worker fills by itself" for each in topology.global_stores
    }
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
            logged.append(LoggedStore(builder.name, layout_of(builder), topic, count, is_input))
    if not logged:
        why = "".join(f"; store '{name}' {reason}" for name, reason in sorted(skipped.items()))
        raise SnapshotError(f"the application has no store that a snapshot could have{why}.")
    return Stores(summary(plan).hash, tuple(sorted(logged)), skipped)


def _reason_to_skip(builder: Any) -> str | None:
    if not builder.logging and builder.source_topic is None:
        return "has no changelog"
    if not builder.persistent:
        return "is kept in memory"
    return None
