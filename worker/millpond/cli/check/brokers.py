"""The check of an application against its brokers: topics, partition counts, rights, replicas. It changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from confluent_kafka.admin import AclOperation, AdminClient, ClusterMetadata

from millpond.cli.acls.grants import topics_of_rights
from millpond.errors import TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS
from millpond.runtime.kafka.dry_run import default_replication_factor, new_topics, not_creatable
from millpond.runtime.kafka.rights import may_use_group, not_created, operations_on
from millpond.runtime.missing_rights import Operation, Resource
from millpond.runtime.topics.plan import Plan, check_counts
from millpond.runtime.topics.planning import plan_on
from millpond.runtime.topics.replicas import risks
from millpond.topology import Topology

__all__ = ("check_on_brokers",)

#: A worker waits longer, since its brokers may be about to start.
_PATIENCE = timedelta(seconds=15)


def check_on_brokers(topology: Topology, config: Config) -> tuple[list[str], list[str]]:
    """Check that a worker could start with these brokers, by the code of its start, and create and change nothing.

    Returns:
        What would end its start, and what it would warn of.

    Raises:
        BrokerError: no broker answers.
        ConfigError: the Kafka client rejects its settings.
    """
    cluster = KafkaAdmin(config.admin_settings(CLIENT_DEFAULTS), patience=_PATIENCE, stopping=lambda: False)
    listings: list[ClusterMetadata] = []
    cluster.on_listing = listings.append
    existing = cluster.topics()
    try:
        plan = plan_on(cluster, existing, topology, config)
        check_counts(plan.internal, existing)
    except TopicError as error:
        return [str(error)], []
    faults, notes = _rights(cluster, topology, config, plan, existing)
    new = new_topics(plan.internal, existing, config.replication_factor)
    refused = cluster.ask(lambda admin, timeout_s: not_creatable(admin, new, timeout_s), "which topics can be created")
    faults.extend(
        str(not_created(f"internal topic '{topic}' cannot be created", topic, error, cluster.access))
        for topic, error in refused.items()
    )
    listing = listings[-1]

    def default() -> int | None:
        broker = min(listing.brokers)
        return cluster.ask(
            lambda admin, timeout_s: default_replication_factor(admin, broker, timeout_s), "the settings of a broker"
        )

    notes.extend(risks(listing, [each.name for each in plan.internal], config.replication_factor, default))
    notes.extend(
        f"topic '{each.topic}' has {each.found} partitions, and the first {each.read} are read: the internal topics of "
        "the application have no more. `millpond reset` makes new ones."
        for each in plan.unread
    )
    return faults, notes


def _rights(
    cluster: KafkaAdmin, topology: Topology, config: Config, plan: Plan, existing: Mapping[str, int]
) -> tuple[list[str], list[str]]:
    """Return the sentences about missing rights: without which no worker starts or stays, and the others."""
    needed = {
        right: [each for each in topics if each in existing]
        for right, topics in topics_of_rights(topology, config, plan).items()
    }
    wanted = sorted({each for topics in needed.values() for each in topics})

    def ask(admin: AdminClient, timeout_s: float) -> tuple[Mapping[str, Collection[AclOperation]], bool]:
        return operations_on(admin, wanted, timeout_s), may_use_group(admin, config.application_id, timeout_s)

    allowed, group = cluster.ask(ask, "the rights of this user")
    faults, notes = list[str](), list[str]()
    for right, topics in needed.items():
        lacking = [each for each in topics if AclOperation[right.operation.name] not in allowed.get(each, AclOperation)]
        if not lacking:
            continue
        sentence = cluster.access.lacks(right.operation, Resource.TOPIC, *lacking)
        (faults if right.ends else notes).append(f"{sentence} Without it: {right.without}.")
    if not group:
        faults.append(cluster.access.lacks(Operation.READ, Resource.GROUP, config.application_id))
    return faults, notes
