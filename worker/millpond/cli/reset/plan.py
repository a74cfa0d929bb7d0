"""The plan of a reset. This module only reads; `apply` makes the changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from millpond.errors import StateDirectoryLocked, TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.state.builders import SessionStoreBuilder, WindowStoreBuilder
from millpond.state.rocksdb.directory_lock import DirectoryLock
from millpond.topology import Topology, decorate, is_repartition_topic

from .cluster import Cluster, Committed
from .internal_topics import NO_CHOICE, Choice, internal_topics

__all__ = ("Inputs", "OffsetMove", "ResetPlan", "Target", "plan_reset", "topics_of", "windows_behind")

Target = Callable[[Cluster, Sequence[Partition], Mapping[Partition, int]], Mapping[Partition, int]]
"""Chooses new offsets: (cluster, partitions, committed offsets) -> offsets, which may lie outside of the partition."""


@dataclass(frozen=True)
class OffsetMove:
    """The committed offset of one input partition, before and after."""

    partition: Partition
    before: int | None
    """None when nothing was committed."""
    after: int
    """Within what the partition holds."""
    owner: str | None = None
    """The worker that the offset's metadata names."""


@dataclass(frozen=True)
class ResetPlan:
    """The plan of a reset: everything that it changes."""

    application_id: str
    moves: tuple[OffsetMove, ...]
    repartition: tuple[OffsetMove, ...]
    """Partitions of repartition topics; their committed offsets become 0, since the topics are deleted."""
    delete_topics: tuple[str, ...]
    keep_topics: Mapping[str, str]
    """Topics with the application's prefix that are kept, each with the reason, a clause after its name."""
    unclear_topics: tuple[str, ...]
    """Topics that may be of a former version of the application, or of another one. The user has to decide."""
    directories: tuple[Path, ...]
    """State directories on this machine, to delete."""
    owners: tuple[str, ...]
    """Workers that the metadata of the committed offsets names; their transactional ids are fenced."""
    active: tuple[str, ...]
    """Signs of running workers, each a part of a sentence."""
    recreated: tuple[str, ...] = ()
    """Inputs that were deleted and created again since their offsets were committed."""

    @property
    def empty(self) -> bool:
        """Whether the reset changes nothing."""
        changes = self.delete_topics or self.directories or self.recreated
        return not (any(move.before != move.after for move in self.moves) or changes)


class Inputs(NamedTuple):
    """The input topics of an application."""

    topics: frozenset[str]
    patterns: tuple[re.Pattern[str], ...] = ()

    def among(self, existing: Collection[str]) -> list[str]:
        """Return the named topics and those that match a pattern, sorted.

        Raises:
            TopicError: a named topic does not exist.
        """
        if missing := sorted(self.topics - set(existing)):
            raise TopicError(f"topic '{missing[0]}' does not exist: create it, or correct the application's inputs.")
        matching = {topic for topic in existing if any(each.fullmatch(topic) for each in self.patterns)}
        return sorted(self.topics | matching)


def topics_of(topology: Topology) -> tuple[Inputs, set[str]]:
    """Return the inputs of a topology, and the logical names of its internal topics.

    Topics of global tables do not count as inputs: they have no committed offsets.
    """
    internal = set(topology.repartition_topics)
    topics: set[str] = set()
    patterns = []
    for part in topology.subtopologies():
        for source in part.sources:
            topics |= set(source.topics)
            if source.pattern is not None:
                patterns.append(source.pattern)
        internal |= set(part.changelogs.values())
    return Inputs(frozenset(topics - topology.repartition_topics.keys()), tuple(patterns)), internal - topics | set(
        topology.repartition_topics
    )


def windows_behind(topology: Topology) -> list[str]:
    """Return the names of the stores of windows and sessions that a repartition topic fills, sorted."""
    repartition = topology.repartition_topics.keys()
    return sorted(
        store.name
        for part in topology.subtopologies()
        if any(topic in repartition for source in part.sources for topic in source.topics)
        for store in part.stores
        if isinstance(store, WindowStoreBuilder | SessionStoreBuilder)
    )


def plan_reset(
    cluster: Cluster, inputs: Inputs, known: Collection[str] | None, target: Target, choice: Choice = NO_CHOICE
) -> ResetPlan:
    """Return the plan of a reset.

    Args:
        cluster: the Kafka clients.
        inputs: the application's input topics.
        known: logical names of its internal topics, or None to recognize them by their names.
        target: chooses the new offsets of the inputs.
        choice: the user's decisions about topics that the code does not name.

    Raises:
        TopicError: an input topic does not exist, or a topic may not be seen.
        ConfigError: the user decided to delete a topic that is no internal topic of the application.
        BrokerError: Kafka did not answer in time, or answered with an error.
    """
    config = cluster.config
    application_id = config.application_id
    counts = cluster.topics()
    own = {decorate(application_id, each) for each in known or ()}
    cluster.check_seen(
        dict.fromkeys(own - counts.keys(), Operation.DELETE)
        | dict.fromkeys(inputs.topics - counts.keys(), Operation.READ)
    )
    topics = inputs.among(counts)
    groups = cluster.groups()
    cluster.check_group_seen(Operation.READ)
    choice.check(counts, application_id, topics)
    cluster.reject_proven_of_others(choice.delete, counts, groups)
    found = internal_topics(
        counts, application_id, groups, known, inputs=topics, choice=choice,
        all_groups=known is not None or cluster.sees_all_groups(),
        proven=lambda some: cluster.proven_changelogs(some, groups),
    )  # fmt: skip
    delete = found.own
    partitions = [Partition(topic, number) for topic in topics for number in range(counts[topic])]
    repartition = [
        Partition(topic, number) for topic in delete if is_repartition_topic(topic) for number in range(counts[topic])
    ]
    committed = cluster.committed([*partitions, *repartition]) if application_id in groups else {}
    offsets = {partition: each.offset for partition, each in committed.items()}
    chosen = cluster.clamp(target(cluster, partitions, offsets))
    directories = _state_directories(config)
    return ResetPlan(
        application_id,
        moves=tuple(
            OffsetMove(each, offsets.get(each), chosen[each], _owner(committed, each))
            for each in partitions
            if each in chosen
        ),
        repartition=tuple(
            OffsetMove(each, offsets[each], 0, _owner(committed, each)) for each in repartition if each in offsets
        ),
        delete_topics=delete,
        keep_topics=found.foreign,
        unclear_topics=found.unclear,
        directories=directories,
        owners=tuple(sorted({each.owner for each in committed.values() if each.owner})),
        active=(*cluster.active_members(groups), *_locked(directories)),
        recreated=tuple(sorted(cluster.recreated({each: committed[each] for each in chosen if each in committed}))),
    )


def _owner(committed: Mapping[Partition, Committed], partition: Partition) -> str | None:
    found = committed.get(partition)
    return None if found is None else found.owner


def _state_directories(config: Config) -> tuple[Path, ...]:
    application = config.state_dir / config.application_id
    return tuple(sorted(path for path in application.iterdir() if path.is_dir())) if application.is_dir() else ()


def _locked(directories: Iterable[Path]) -> list[str]:
    signs = []
    for directory in directories:
        if not (directory / "lock").exists():  # a preview must not create a lock file
            continue
        try:
            DirectoryLock(directory).release()
        except StateDirectoryLocked as error:
            signs.append(str(error).partition(":")[0])
        except OSError:  # the directory of another user: deleting it reports the error
            continue
    return signs
