"""The deletion of a topic, for `millpond topics NAME --delete`: only if no running application reads it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import replace

from millpond.cli.reset.apply import delete_topics
from millpond.cli.reset.cluster import Cluster
from millpond.cli.reset.running import RunningWorkers
from millpond.errors import TopicError
from millpond.runtime.config.model import Config

__all__ = ("delete_topic", "readers_of", "reject_internal")


def reject_internal(topic: str, kind: str) -> None:
    """Reject an internal topic.

    Args:
        topic: the topic.
        kind: `changelog` or `repartition`; empty for other topics.

    Raises:
        TopicError: see above.
    """
    if kind:
        raise TopicError(
            f"topic '{topic}' is a {kind} topic, which belongs to the state of an application: `millpond reset` "
            "deletes it together with the rest of the state."
        )
    if topic.startswith("__"):
        raise TopicError(f"topic '{topic}' is one of Kafka's own, and is not deleted.")


def readers_of(config: Config, topic: str, tell: Callable[[str], None]) -> list[str]:
    """Return the consumer groups with committed offsets in a topic. None of them runs.

    Args:
        config: the configuration.
        topic: the topic.
        tell: called with a line about what is waited for.

    Raises:
        TopicError: a worker or a consumer of such a group seems to be running.
        BrokerError: Kafka answered with an error, or did not answer in time.
    """
    with closing(Cluster(config)) as cluster:
        groups = cluster.groups()
        readers = cluster.readers(topic, groups)
    for reader in readers:
        if running := _running(config, reader, groups, tell):
            raise TopicError(f"topic '{topic}' is read by '{reader}', which seems to run ({running}): stop it first.")
    return readers


def delete_topic(config: Config, topic: str) -> None:
    """Delete a topic, and wait until it is deleted.

    Raises:
        BrokerError: the broker rejected it, or did not delete it in time.
    """
    with closing(Cluster(config)) as cluster:
        delete_topics(cluster, [topic])


def _running(config: Config, application_id: str, groups: Collection[str], tell: Callable[[str], None]) -> str:
    with closing(Cluster(replace(config, application_id=application_id))) as cluster:
        return "; ".join((*cluster.active_members(groups), *RunningWorkers(cluster, tell).signs()))
