"""The plan of an application: its topics with partitions and settings, and its tasks.

Pure functions of a topology and the partition counts of the existing topics.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from millpond.checks import nearest
from millpond.errors import TopicError
from millpond.protocol import SubtopologySummary, TopologySummary
from millpond.runtime.config.model import Config
from millpond.runtime.missing_rights import Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.topology import Subtopology, TaskId, Topology, decorate

__all__ = (
    "Plan",
    "TopicSpec",
    "Unread",
    "changelog_topic",
    "check_counts",
    "make_plan",
    "outside_topics",
    "plan_with",
    "summary",
)

#: Topic settings of repartition topics. They keep records for ever, since the application purges them itself.
REPARTITION_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    "message.timestamp.type": "CreateTime",
}
#: Settings of repartition topics that the configuration cannot change: compaction would lose records of equal keys, and
#: the broker's clock would replace event time.
REPARTITION_FIXED = frozenset({"cleanup.policy", "message.timestamp.type"})


@dataclass(frozen=True)
class TopicSpec:
    """The specification of an internal topic."""

    name: str
    """Name in Kafka."""
    partitions: int
    """Partition count; an existing topic must have the same."""
    config: Mapping[str, str]
    """Topic settings to create it with."""


@dataclass(frozen=True)
class Unread:
    """An input with partitions that no task reads."""

    topic: str
    """Name in Kafka."""
    read: int
    """Number of partitions that are read: the first ones."""
    found: int
    """Number of partitions that the topic has."""


@dataclass(frozen=True)
class Plan:
    """The topics and tasks of an application, with the topics' names in Kafka."""

    subtopologies: tuple[Subtopology, ...]
    """The sub-topologies, with patterns resolved to topics."""
    partitions: Mapping[str, int]
    """Partition count of each source topic."""
    internal: tuple[TopicSpec, ...]
    """Repartition and changelog topics."""
    tasks: Mapping[TaskId, tuple[str, ...]]
    """Each task with its source topics: those that have its partition."""
    repartition: tuple[str, ...]
    """Repartition topics."""
    changelogs: Mapping[int, Mapping[str, str]]
    """Changelog topic of each logged store, by sub-topology and store."""
    unread: tuple[Unread, ...] = ()
    """Inputs with more partitions than the internal topics of their sub-topology, which fix the number of its tasks."""

    def inputs_of(self, task: TaskId) -> list[Partition]:
        """Return the input partitions of a task."""
        return [Partition(topic, task.partition) for topic in self.tasks[task]]

    def partitions_of(self, topic: str) -> int:
        """Return the partition count of a changelog."""
        internal = next((each.partitions for each in self.internal if each.name == topic), None)
        return self.partitions[topic] if internal is None else internal

    def changelogs_of(self, task: TaskId) -> list[Partition]:
        """Return the changelog partitions of a task's stores."""
        return [Partition(topic, task.partition) for topic in self.changelogs[task.subtopology].values()]


def changelog_topic(subtopology: Subtopology, store: str, internal: frozenset[str], application_id: str) -> str | None:
    """Return the changelog topic of a store, by its name in Kafka, or None. A source topic may serve as one."""
    logical = subtopology.changelogs.get(store)
    if logical is None:
        return None
    if logical in subtopology.source_topics and logical not in internal:
        return logical
    return decorate(application_id, logical)


def make_plan(  # noqa: PLR0913 - the settings are keyword-only
    topology: Topology,
    existing: Mapping[str, int],
    application_id: str,
    *,
    topic_config: Mapping[str, str] | None = None,
    additional_retention_ms: int = 86_400_000,
    dead_letter_topic: str | None = None,
) -> Plan:
    """Derive the plan of an application.

    If an input gets more partitions, a sub-topology with existing internal topics keeps its number of tasks, since its
    state and internal topics are partitioned by it (docs/decisions/0028-inputs-that-change.md).

    Args:
        topology: the application's topology.
        existing: the partition count of every topic in the cluster.
        application_id: prefix of internal topics.
        topic_config: settings of all internal topics; they override the defaults of repartition topics.
        additional_retention_ms: added to the retention of window changelogs, in milliseconds.
        dead_letter_topic: the dead-letter topic, which must exist.

    Raises:
        TopicError: a source, sink or dead-letter topic does not exist, or topics that a join or merge needs
            co-partitioned have different partition counts.
    """
    subtopologies = [_with_matching_topics(each, existing, application_id) for each in topology.subtopologies()]
    repartition = dict(topology.repartition_topics)
    known = _source_partitions(subtopologies, repartition, existing, topology)
    unread = _keep_task_counts(subtopologies, repartition, known, existing, application_id)
    for name, declared in repartition.items():
        if declared.partitions is None and (found := existing.get(decorate(application_id, name))) is not None:
            known[name] = found
    _derive_repartition(subtopologies, repartition, known)
    _check_copartitions(subtopologies, repartition, known)
    _check_sinks(subtopologies, repartition, existing)
    _require_topics("dead-letter", {dead_letter_topic} if dead_letter_topic else set(), existing)

    def real(name: str) -> str:
        return decorate(application_id, name) if name in repartition else name

    common = dict(topic_config or {})
    changes = {name: value for name, value in common.items() if name not in REPARTITION_FIXED}
    internal = [TopicSpec(real(name), known[name], {**REPARTITION_CONFIG, **changes}) for name in repartition]
    tasks: dict[TaskId, tuple[str, ...]] = {}
    for subtopology in subtopologies:
        topics = sorted(subtopology.source_topics)
        count = max((known[topic] for topic in topics), default=0)
        for partition in range(count):
            inputs = tuple(real(topic) for topic in topics if partition < known[topic])
            tasks[TaskId(subtopology.id, partition)] = inputs
        for topic, builder in _changelogs(subtopology, frozenset(repartition), application_id):
            internal.append(TopicSpec(topic, count, builder.changelog_config(common, additional_retention_ms)))
    return Plan(
        subtopologies=tuple(subtopologies),
        partitions={real(topic): count for topic, count in known.items()},
        internal=tuple(internal),
        tasks=tasks,
        repartition=tuple(real(name) for name in repartition),
        changelogs={
            subtopology.id: {
                store.name: logged
                for store in subtopology.stores
                if (logged := changelog_topic(subtopology, store.name, frozenset(repartition), application_id))
            }
            for subtopology in subtopologies
        },
        unread=unread,
    )


def outside_topics(topology: Topology, config: Config) -> dict[str, Operation]:
    """Return the topics that have to exist before the start, without those that patterns or records choose.

    Each has the operation that it is first needed for: Read if it is an input.
    """
    read = {topic for store in topology.global_stores for topic in store.source.topics}
    dead_letters = config.errors_dead_letter_queue_topic_name
    written = {dead_letters} if dead_letters else set[str]()
    for part in topology.subtopologies():
        read |= part.source_topics
        written |= part.sink_topics
    internal = topology.repartition_topics.keys()
    return dict.fromkeys(written - internal, Operation.WRITE) | dict.fromkeys(read - internal, Operation.READ)


def plan_with(topology: Topology, existing: Mapping[str, int], config: Config) -> Plan:
    """Derive the plan with the settings of a configuration; arguments and errors are those of `make_plan`."""
    return make_plan(
        topology,
        existing,
        config.application_id,
        topic_config=config.topic,
        additional_retention_ms=config.windowstore_changelog_additional_retention_ms,
        dead_letter_topic=config.errors_dead_letter_queue_topic_name,
    )


def check_counts(topics: Iterable[TopicSpec], existing: Mapping[str, int]) -> None:
    """Check that the internal topics that exist have the partition counts of the plan.

    Raises:
        TopicError: one has another.
    """
    for topic in topics:
        count = existing.get(topic.name, topic.partitions)
        if count != topic.partitions:
            raise TopicError(
                f"internal topic '{topic.name}' has {count} partitions, but the topology needs {topic.partitions}: "
                f"the inputs' partition counts changed, or another application has the same 'application.id'. "
                f"Restore the old counts, or run 'millpond reset' to process the inputs from the beginning."
            )


def _keep_task_counts(
    subtopologies: list[Subtopology],
    repartition: Mapping[str, Any],
    known: dict[str, int],
    existing: Mapping[str, int],
    application_id: str,
) -> tuple[Unread, ...]:
    """Limit the partitions of inputs to those of the sub-topology's internal topics. Return inputs that have more."""
    unread: list[Unread] = []
    for subtopology in subtopologies:
        internal = {decorate(application_id, name) for name in subtopology.source_topics if name in repartition}
        internal |= {topic for topic, _ in _changelogs(subtopology, frozenset(repartition), application_id)}
        counts = {existing[topic] for topic in internal if topic in existing}
        if len(counts) != 1:
            continue  # none exists yet; or their counts differ, which `check_counts` rejects
        (count,) = counts
        for topic in sorted(subtopology.source_topics):
            if topic not in repartition and known[topic] > count:
                unread.append(Unread(topic, count, known[topic]))
                known[topic] = count
    return tuple(unread)


def summary(plan: Plan) -> TopologySummary:
    """Return the topology for the coordinator, with a hash of the parts that all workers share: tasks and state.

    The processors of a sub-topology may differ between two versions of an application that run at the same time. The
    same is true for the topics that match a pattern, for the partitions of a topic up to the number of tasks, and for
    a number of tasks that follows the inputs: workers notice new topics and partitions at different times.
    """
    parts = tuple(_summary_of(each, plan) for each in plan.subtopologies)
    fixed = [_without_counts(each) if each.follows_inputs else each for each in parts]
    logged = [[each.id, sorted(plan.changelogs[each.id].items())] for each in plan.subtopologies]
    raw = msgspec.json.encode([fixed, logged], order="sorted")
    return TopologySummary(hashlib.sha256(raw).hexdigest()[:16], parts)


def _summary_of(subtopology: Subtopology, plan: Plan) -> SubtopologySummary:
    count = sum(task.subtopology == subtopology.id for task in plan.tasks)
    matched = {topic for source in subtopology.sources if source.pattern is not None for topic in source.topics}
    named = {topic for task, topics in plan.tasks.items() if task.subtopology == subtopology.id for topic in topics}
    patterns = {f"/{source.pattern.pattern}/" for source in subtopology.sources if source.pattern is not None}
    return SubtopologySummary(
        id=subtopology.id,
        partitions=count,
        stateful=bool(plan.changelogs[subtopology.id]),
        stores=tuple(store.name for store in subtopology.stores),
        sources=dict.fromkeys(sorted((named - matched) | patterns), count),
        follows_inputs=not subtopology.stores and named.isdisjoint(plan.repartition),
    )


def _without_counts(part: SubtopologySummary) -> SubtopologySummary:
    return msgspec.structs.replace(part, partitions=0, sources=dict.fromkeys(part.sources, 0))


def _source_partitions(
    subtopologies: list[Subtopology], repartition: Mapping[str, Any], existing: Mapping[str, int], topology: Topology
) -> dict[str, int]:
    known: dict[str, int] = {}
    wanted = {topic for each in subtopologies for topic in each.source_topics if topic not in repartition}
    wanted |= {topic for store in topology.global_stores for topic in store.source.topics}
    _require_topics("source", wanted, existing)
    for topic in wanted:
        known[topic] = existing[topic]
    return known


def _check_sinks(subtopologies: list[Subtopology], repartition: Mapping[str, Any], existing: Mapping[str, int]) -> None:
    """Check that the sink topics exist: records of a missing one would wait in the producer and block every commit.

    Topics that a function names per record are looked up with their first record.
    """
    named = {sink.topic for each in subtopologies for sink in each.sinks if isinstance(sink.topic, str)}
    _require_topics("sink", named - set(repartition), existing)


def _require_topics(kind: str, topics: set[str], existing: Mapping[str, int]) -> None:
    missing = sorted(topic for topic in topics if topic not in existing)
    if missing:
        several = len(missing) > 1
        named = ", ".join(f"'{topic}'" for topic in missing)
        where = "'errors.dead.letter.queue.topic.name'" if kind == "dead-letter" else "the topology"
        near = [found for topic in missing if (found := nearest(topic, existing))]
        hint = f" Did you mean {' and '.join(repr(each) for each in near)}?" if near else ""
        raise TopicError(
            f"{kind} topic{'s' if several else ''} {named} {'do' if several else 'does'} not exist: create "
            f"{'them' if several else 'it'} first, or correct the name in {where}.{hint}"
        )


def _derive_repartition(
    subtopologies: list[Subtopology], repartition: Mapping[str, Any], known: dict[str, int]
) -> None:
    """Set the partition count of each repartition topic: the given one, else the highest of its upstream topics."""
    for name, topic in repartition.items():
        if topic.partitions is not None:
            known[name] = topic.partitions
    upstream = {
        name: {topic for each in subtopologies if name in each.sink_topics for topic in each.source_topics}
        for name in repartition
        if name not in known
    }
    # Topics may be upstream of each other: counts are passed on until none grows.
    derived = dict.fromkeys(upstream, 0)
    grown = True
    while grown:
        grown = False
        for name, topics in upstream.items():
            count = max((known.get(topic, derived.get(topic, 0)) for topic in topics), default=0)
            if count > derived[name]:
                derived[name] = count
                grown = True
    for name, count in derived.items():
        if not count:
            raise TopicError(
                f"the partition count of repartition topic '{name}' cannot be derived from its inputs: "
                f"set it with .repartition(partitions=…)."
            )
        known[name] = count


def _check_copartitions(
    subtopologies: list[Subtopology], repartition: Mapping[str, Any], known: dict[str, int]
) -> None:
    for subtopology in subtopologies:
        for group in subtopology.copartition_groups:
            fixed = sorted(
                topic for topic in group if topic not in repartition or repartition[topic].partitions is not None
            )
            free = [topic for topic in group if topic not in fixed]
            counts = {known[topic] for topic in fixed}
            if len(counts) > 1:
                raise TopicError(_mismatch(subtopology, fixed, known))
            count = counts.pop() if counts else max(known[topic] for topic in free)
            for topic in free:
                known[topic] = count


def _mismatch(subtopology: Subtopology, topics: list[str], known: Mapping[str, int]) -> str:
    biggest = max(topics, key=lambda topic: known[topic])
    smallest = min(topics, key=lambda topic: known[topic])
    node = _common_processor(subtopology, {biggest, smallest})
    place = f"'{node}'" if node else "a join or merge"
    return (
        f"topic '{biggest}' has {known[biggest]} partitions and '{smallest}' has {known[smallest]}, but {place} needs "
        f"them equal. Repartition one side with .repartition(partitions={known[biggest]}), or recreate '{smallest}' "
        f"with {known[biggest]}."
    )


def _common_processor(subtopology: Subtopology, topics: set[str]) -> str | None:
    """Return the first processor that gets records of all the topics."""
    reached: dict[str, set[str]] = {source.name: set(source.topics) & topics for source in subtopology.sources}
    store_topics: dict[str, set[str]] = {}
    for node in subtopology.processors:
        found = set().union(*(reached.get(parent, set()) for parent in node.parents))
        for store in node.stores:
            store_topics.setdefault(store, set()).update(found)
            found = found | store_topics[store]
        reached[node.name] = found
        if found >= topics:
            return node.name
    return None


def _changelogs(subtopology: Subtopology, internal: frozenset[str], application_id: str) -> Iterator[tuple[str, Any]]:
    for store in subtopology.stores:
        topic = changelog_topic(subtopology, store.name, internal, application_id)
        if topic is not None and topic not in subtopology.source_topics:
            yield topic, store


def _with_matching_topics(subtopology: Subtopology, existing: Mapping[str, int], application_id: str) -> Subtopology:
    """Return the sub-topology with the topics that match its patterns; internal topics never match."""
    if not any(source.pattern for source in subtopology.sources):
        return subtopology
    sources = []
    for source in subtopology.sources:
        pattern = source.pattern
        if pattern is not None:
            topics = tuple(
                sorted(
                    topic
                    for topic in existing
                    if pattern.fullmatch(topic) and not topic.startswith((f"{application_id}-", "__"))
                )
            )
            if not topics:
                raise TopicError(
                    f"no topic matches the pattern '{pattern.pattern}' of source '{source.name}': create one first, or "
                    f"correct the pattern."
                )
            source = replace(source, topics=topics)
        sources.append(source)
    return replace(subtopology, sources=tuple(sources))
