"""`millpond reset --delete`: deletes an application's state in Kafka, but not its input and output topics.

Owners are fenced first, so that no running worker commits again. The consumer group is deleted last, since its offsets
name the owners. So an interrupted deletion can be repeated with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from millpond.runtime.missing_rights import Operation
from millpond.runtime.ownership.presence import presence_group
from millpond.topology import decorate

from .apply import delete_topics, fence
from .cluster import Cluster
from .internal_topics import NO_CHOICE, Choice, internal_topics

__all__ = ("DeletePlan", "apply_deletion", "plan_deletion")


@dataclass(frozen=True)
class DeletePlan:
    """The plan of a deletion: everything that it deletes."""

    application_id: str
    delete_topics: tuple[str, ...]
    keep_topics: Mapping[str, str]
    """Topics with the application's prefix that are kept, each with the reason, a clause after its name."""
    unclear_topics: tuple[str, ...]
    """Topics that may be of a former version of the application, or of another one. They are kept."""
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


def plan_deletion(
    cluster: Cluster, known: Collection[str] | None, inputs: Collection[str] = (), choice: Choice = NO_CHOICE
) -> DeletePlan:
    """Return the plan of a deletion.

    Args:
        cluster: the Kafka clients.
        known: logical names of the application's internal topics, or None to recognize them by their names.
        inputs: the application's inputs, as far as they are known.
        choice: the user's decisions about topics that the code does not name.

    Raises:
        ConfigError: the user decided to delete a topic that is no internal topic of the application.
        BrokerError: Kafka did not answer in time, or answered with an error.
    """
    application_id = cluster.config.application_id
    topics = cluster.topics()  # first: only then does the client know all brokers, which list their own groups
    cluster.check_seen(
        dict.fromkeys({decorate(application_id, each) for each in known or ()} - topics.keys(), Operation.DELETE)
    )
    groups = cluster.groups()
    cluster.check_group_seen(Operation.DELETE)
    choice.check(topics, application_id, inputs)
    cluster.reject_proven_of_others(choice.delete, topics, groups)
    found = internal_topics(
        topics, application_id, groups, known, inputs=inputs, choice=choice,
        all_groups=known is not None or cluster.sees_all_groups(),
        proven=lambda some: cluster.proven_changelogs(some, groups),
    )  # fmt: skip
    exists = application_id in groups
    committed = cluster.all_committed(Operation.DELETE) if exists else {}
    return DeletePlan(
        application_id,
        delete_topics=found.own,
        keep_topics=found.foreign,
        unclear_topics=found.unclear,
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
