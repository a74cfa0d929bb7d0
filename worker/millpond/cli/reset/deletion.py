"""`millpond reset --delete`: deletes an application's state in Kafka, but not its input and output topics.

Owners are fenced first, so that no running worker commits again. The consumer group is deleted last, since its offsets
name the owners. So an interrupted deletion can be repeated with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from millpond.runtime.ownership.presence import presence_group

from .apply import delete_topics, fence
from .cluster import Cluster
from .plan import internal_topics

__all__ = ("DeletePlan", "apply_deletion", "plan_deletion")


@dataclass(frozen=True)
class DeletePlan:
    """The plan of a deletion: everything that it deletes."""

    application_id: str
    delete_topics: tuple[str, ...]
    keep_topics: tuple[str, ...]
    """Topics with the application's prefix that are kept, since they seem to belong to another application."""
    group: bool
    """Whether the consumer group exists."""
    owners: tuple[str, ...]
    """Workers that the metadata of the committed offsets names; their transactional ids are fenced."""
    active: tuple[str, ...]
    """Signs of running workers, each a part of a sentence."""

    @property
    def empty(self) -> bool:
        """Whether nothing is left to delete."""
        return not (self.delete_topics or self.group)


def plan_deletion(cluster: Cluster, known: Collection[str] | None) -> DeletePlan:
    """Return the plan of a deletion.

    Args:
        cluster: the Kafka clients.
        known: logical names of the application's internal topics, or None to recognize them by their names.

    Raises:
        BrokerError: Kafka did not answer in time, or answered with an error.
    """
    application_id = cluster.config.application_id
    topics = cluster.topics()  # first: only then does the client know all brokers, which list their own groups
    groups = cluster.groups()
    delete, keep = internal_topics(topics, application_id, groups, known)
    exists = application_id in groups
    committed = cluster.all_committed() if exists else {}
    return DeletePlan(
        application_id,
        delete_topics=tuple(delete),
        keep_topics=tuple(keep),
        group=exists,
        owners=tuple(sorted({each.owner for each in committed.values() if each.owner})),
        active=tuple(cluster.active_members(groups)),
    )


def apply_deletion(cluster: Cluster, plan: DeletePlan, check: Callable[[], None]) -> None:
    """Apply a plan.

    Args:
        cluster: the Kafka clients.
        plan: the plan.
        check: called before anything is deleted, to raise if a worker was started meanwhile.

    Raises:
        BrokerError: Kafka rejected a step, or did not answer in time; earlier steps stay, and the deletion can be
            repeated.
    """
    for owner in plan.owners:
        fence(cluster, owner)
    check()
    delete_topics(cluster, plan.delete_topics)
    cluster.delete_group(presence_group(plan.application_id))
    if plan.group:
        cluster.delete_group(plan.application_id)
