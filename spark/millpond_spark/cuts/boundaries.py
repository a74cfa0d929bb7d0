"""The boundaries of a snapshot: an end offset for each changelog partition, fixed before anything is read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition

from millpond.errors import BrokerError, SnapshotError
from millpond.runtime.config.model import Config
from millpond.runtime.error_codes import Request, may_repeat
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import make_offset_reader
from millpond.runtime.kafka.end_offsets import offset_in
from millpond.runtime.kafka.group_events import read_committed_offsets
from millpond.runtime.missing_rights import Access, Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity
from millpond_spark.stores import ChangelogStore

from .consistent_cut import find_cut

__all__ = (
    "COMMON_CUT_S",
    "Boundaries",
    "ChangelogEnds",
    "Range",
    "changelog_ends",
    "check_topics_unchanged",
    "read_boundaries",
    "wall_ms",
    "warn_of_torn_tasks",
)

log = logging.getLogger(__name__)

_ATTEMPTS = 10
_BACKOFF_S = 0.5
_TIMEOUT_S = 30.0
#: How long to look for a cut of all tasks at once; after that, a cut of each task is enough.
COMMON_CUT_S = 3.0
_CUT_TIMEOUT_S = 10.0


def wall_ms() -> int:
    """Return the wall-clock time in epoch milliseconds."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Range:
    """The range of offsets to read from one changelog partition."""

    first: int
    """The first offset that the topic still has."""
    end: int
    """The offset after the last record of the snapshot; no transaction is open before it."""


@dataclass(frozen=True)
class Boundaries:
    """The ranges of offsets to read from an application's changelogs."""

    as_of_ms: int
    """When the end offsets were requested, in epoch milliseconds."""
    ranges: Mapping[Partition, Range]
    facts: Mapping[str, TopicIdentity]
    """The identity of each topic."""


class ChangelogEnds:
    """The present ends of an application's changelogs, from the brokers.

    The end of a changelog is its last stable offset. Where an input topic serves as the changelog, the end is the
    offset that the application has committed: later records are not processed yet, and are not state.

    Attributes:
        tasks: the partitions of each task, by sub-topology and number.
        inputs: the partitions of inputs that serve as changelogs.
        of_global: the partitions of the topics of global stores, which are not part of the application's transactions.
    """

    def __init__(
        self,
        cluster: KafkaAdmin,
        stores: Iterable[ChangelogStore],
        committed: Callable[[AbstractSet[Partition]], dict[Partition, int]],
    ) -> None:
        self._cluster = cluster
        self._committed = committed
        self.tasks: dict[tuple[int, int], set[Partition]] = {}
        self.of_global: set[Partition] = set()
        for store in stores:
            for number in range(store.partitions):
                partition = Partition(store.topic, number)
                if store.layout.is_global:
                    self.of_global.add(partition)
                else:
                    self.tasks.setdefault((store.subtopology, number), set()).add(partition)
        self.inputs: set[Partition] = _inputs(stores)

    @property
    def all(self) -> set[Partition]:
        """All partitions."""
        return {each for own in self.tasks.values() for each in own} | self.of_global

    def stable(self, asked: AbstractSet[Partition]) -> dict[Partition, int]:
        """Return the offsets after the last committed records; of inputs, the committed offsets."""
        return {**_stable_ends(self._cluster, asked - self.inputs), **self._committed(asked & self.inputs)}

    def latest(self, asked: AbstractSet[Partition]) -> dict[Partition, int]:
        """Return the offsets after the last records, open transactions included; nothing for inputs."""
        return {each: end for each, (_, end) in self._cluster.ranges(asked - self.inputs).items()}

    def existing(self, ends: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return ends, those of inputs not beyond the records that the topic still has."""
        known = _stable_ends(self._cluster, self.inputs & ends.keys())
        return {**ends, **{each: min(ends[each], end) for each, end in known.items()}}

    def torn_tasks(self, torn: Iterable[int]) -> str:
        """Return the names of tasks, given by their indexes, for messages."""
        ids = list(self.tasks)
        names = ["{}_{}".format(*ids[each]) for each in sorted(torn)]
        return f"tasks {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}"


@contextmanager
def changelog_ends(cluster: KafkaAdmin, config: Config, stores: Iterable[ChangelogStore]) -> Iterator[ChangelogEnds]:
    """Yield the ends of an application's changelogs."""
    stores = tuple(stores)
    with _committed_offsets(config, _inputs(stores)) as committed:
        yield ChangelogEnds(cluster, stores, committed)


def read_boundaries(
    cluster: KafkaAdmin,
    config: Config,
    stores: Iterable[ChangelogStore],
    now_ms: Callable[[], int] = wall_ms,
    cut_timeout_s: float = _CUT_TIMEOUT_S,
) -> Boundaries:
    """Read the first and the end offsets of the changelogs from the brokers.

    All ends are of one moment between commits, or at least all ends of one task are (see `consistent_cut`). So a
    transaction is in all stores or in none. Global stores are not part of the application's transactions: each ends at
    the last stable offset of its topic.

    Args:
        cluster: the brokers.
        config: the configuration of the application.
        stores: the stores of the application.
        now_ms: the wall-clock time, in epoch ms.
        cut_timeout_s: how long to look for such a moment, in seconds.

    Raises:
        BrokerError: the brokers do not answer.
    """
    with changelog_ends(cluster, config, stores) as changelogs:
        facts = cluster.facts({each.topic for each in changelogs.all})
        firsts = {each: first for each, (first, _) in cluster.ranges(changelogs.all).items()}
        as_of_ms = now_ms()
        tasks = list(changelogs.tasks.values())
        common_s = min(COMMON_CUT_S, cut_timeout_s)
        cut = find_cut(tasks, changelogs.stable, changelogs.latest, common_s, cut_timeout_s)
        if cut.torn:
            warn_of_torn_tasks(changelogs, cut.torn, cut_timeout_s)
        ends = {**changelogs.existing(cut.ends), **changelogs.stable(changelogs.of_global)}
    # Without committed offsets, or when the topic no longer has the committed records, there is nothing to read.
    ranges = {each: Range(first, max(first, ends[each])) for each, first in firsts.items()}
    return Boundaries(as_of_ms, ranges, facts)


def warn_of_torn_tasks(changelogs: ChangelogEnds, torn: Iterable[int], timeout_s: float) -> None:
    """Warn about tasks without a moment between commits, given by their indexes."""
    log.warning(
        "%s: no pause of some milliseconds between commits within %g s; their stores may be of different commits, "
        "so a query over several of them may see half of a transaction",
        changelogs.torn_tasks(torn), timeout_s,
    )  # fmt: skip


def check_topics_unchanged(
    cluster: KafkaAdmin, boundaries: Boundaries, now_ms: int, built_upon_ms: Mapping[str, int] | None = None
) -> None:
    """Check after reading that no changelog has been replaced or has lost deletions since the boundaries were fixed.

    Args:
        cluster: the brokers.
        boundaries: the boundaries of the snapshot.
        now_ms: the wall-clock time, in epoch ms.
        built_upon_ms: by topic, the time of the oldest rows of the previous version that newer records were added to,
            in epoch ms.

    Raises:
        SnapshotError: a topic was deleted and created again, or reading took so long that deletions may be missing.
        BrokerError: a topic no longer exists, or the brokers do not answer.
    """
    for topic, facts in cluster.facts(boundaries.facts.keys()).items():
        if facts.id != boundaries.facts[topic].id:
            raise SnapshotError(
                f"changelog '{topic}' was deleted and created again while it was read, so the snapshot is dropped: "
                "make another one."
            )
        kept_ms = facts.delete_retention_ms
        if kept_ms is None:
            continue
        since_ms = (built_upon_ms or {}).get(topic, boundaries.as_of_ms)
        if now_ms - boundaries.as_of_ms > kept_ms:
            raise SnapshotError(
                f"reading took {(now_ms - boundaries.as_of_ms) / 1000:.0f} s, and changelog '{topic}' keeps deletions "
                f"for {kept_ms / 1000:.0f} s only, so the snapshot is dropped: raise 'delete.retention.ms' of the "
                "topic, or give Spark more cores."
            )
        if now_ms - since_ms > kept_ms:
            raise SnapshotError(
                f"the previous snapshot is {(now_ms - since_ms) / 1000:.0f} s old now, and changelog '{topic}' keeps "
                f"deletions for {kept_ms / 1000:.0f} s only, so later deletions may be missing and the snapshot is "
                "dropped: run it again, which reads the changelog from its beginning, and make snapshots more often."
            )


def _inputs(stores: Iterable[ChangelogStore]) -> set[Partition]:
    return {
        Partition(store.topic, number)
        for store in stores
        if store.is_input and not store.layout.is_global
        for number in range(store.partitions)
    }


def _stable_ends(cluster: KafkaAdmin, wanted: Collection[Partition]) -> dict[Partition, int]:
    """Return the last stable offset of each partition, from one request."""
    if not wanted:
        return {}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return {each: offset_in(found) for each, found in cluster.ask_ends(wanted).items()}
        except KafkaException as error:
            if attempt == _ATTEMPTS or not may_repeat(error.args[0], Request.READ):
                cure = cluster.access.cure(error.args[0], {each.topic for each in wanted}, Operation.DESCRIBE)
                raise BrokerError(
                    f"cannot read the end offsets of changelogs: {error.args[0].str()}. {cure}"
                ) from error
            time.sleep(_BACKOFF_S)
    raise AssertionError


@contextmanager
def _committed_offsets(
    config: Config, inputs: AbstractSet[Partition]
) -> Iterator[Callable[[AbstractSet[Partition]], dict[Partition, int]]]:
    """Yield a function that returns the committed offsets of input partitions; -1 without one."""
    if not inputs:
        yield lambda _: {}
        return
    access = Access.of(config.consumer_settings(), config.application_id)
    with closing(make_offset_reader(config, lambda _error: None)) as consumer:

        def committed(wanted: AbstractSet[Partition]) -> dict[Partition, int]:
            if not wanted:
                return {}
            try:
                found = read_committed_offsets(consumer, [TopicPartition(*each) for each in wanted], _TIMEOUT_S)
            except KafkaException as error:
                cure = access.cure(error.args[0], {each.topic for each in wanted}, Operation.DESCRIBE)
                raise BrokerError(
                    f"cannot read the committed offsets of '{config.application_id}': {error.args[0].str()}. {cure}"
                ) from error
            return {Partition(each.topic, each.partition): max(each.offset, -1) for each in found}

        yield committed
