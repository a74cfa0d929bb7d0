"""What an application needs in Kafka: partitions of every topic, internal topics with their settings, and the tasks.

Pure: from a topology and the partition counts of the topics that exist.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from millpond.errors import TopicError
from millpond.protocol import SubtopologySummary, TopologySummary
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import Partition
from millpond.topology import Subtopology, TaskId, Topology, decorate

__all__ = ("Plan", "TopicSpec", "Unread", "changelog_topic", "make_plan", "plan_with", "summary")

#: Repartition topics are purged by the application itself (semantics.md 1.1).
REPARTITION_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
    "message.timestamp.type": "CreateTime",
}
#: What no setting for all internal topics changes: compaction would lose records of equal keys, and the broker's clock
#: would take the place of event time.
REPARTITION_FIXED = frozenset({"cleanup.policy", "message.timestamp.type"})


@dataclass(frozen=True)
class TopicSpec:
    """An internal topic as it has to be."""

    name: str
    """Real name."""
    partitions: int
    """Partition count; an existing topic must have exactly as many."""
    config: Mapping[str, str]
    """Topic settings to create it with."""


@dataclass(frozen=True)
class Unread:
    """Partitions of an input that no task reads."""

    topic: str
    """Real name."""
    read: int
    """How many partitions are read: the first ones."""
    found: int
    """How many the topic has."""


@dataclass(frozen=True)
class Plan:
    """Everything a worker has to know about topics before it starts."""

    subtopologies: tuple[Subtopology, ...]
    """The topology's parts, with patterns resolved to topics."""
    partitions: Mapping[str, int]
    """Partition count of each source topic by real name."""
    internal: tuple[TopicSpec, ...]
    """Repartition and changelog topics."""
    tasks: Mapping[TaskId, tuple[str, ...]]
    """Each task with the real names of the source topics that have its partition."""
    repartition: tuple[str, ...]
    """Real names of the repartition topics."""
    changelogs: Mapping[int, Mapping[str, str]]
    """Real changelog topic of each logged store, by sub-topology."""
    unread: tuple[Unread, ...] = ()
    """Inputs that have more partitions than the internal topics of their sub-topology, which fix the number of its tasks."""

    def inputs_of(self, task: TaskId) -> list[Partition]:
        """The partitions that a task reads."""
        return [Partition(topic, task.partition) for topic in self.tasks[task]]

    def partitions_of(self, topic: str) -> int:
        """How many partitions a changelog has, by its real name."""
        internal = next((each.partitions for each in self.internal if each.name == topic), None)
        return self.partitions[topic] if internal is None else internal

    def changelogs_of(self, task: TaskId) -> list[Partition]:
        """The partitions that a task's stores are restored from."""
        return [Partition(topic, task.partition) for topic in self.changelogs[task.subtopology].values()]


def changelog_topic(subtopology: Subtopology, store: str, internal: frozenset[str], application_id: str) -> str | None:
    """The real changelog topic of a store, None when it has none. A source topic may double as one."""
    logical = subtopology.changelogs.get(store)
    if logical is None:
        return None
    if logical in subtopology.source_topics and logical not in internal:
        return logical
    return decorate(application_id, logical)


def make_plan(
    topology: Topology,
    existing: Mapping[str, int],
    application_id: str,
    *,
    topic_config: Mapping[str, str] | None = None,
    additional_retention_ms: int = 86_400_000,
    dead_letter_topic: str | None = None,
) -> Plan:
    """Derive the plan.

    A sub-topology whose internal topics exist keeps their number of partitions, and so its number of tasks, when an input
    gets more: state and internal topics are divided by it (docs/decisions/0028-inputs-that-change.md).

    Args:
        topology: the application's topology.
        existing: partition count of every topic in the cluster.
        application_id: prefix of internal topics.
        topic_config: settings for all internal topics; they go over the defaults of repartition topics.
        additional_retention_ms: added to the retention of window changelogs.
        dead_letter_topic: where handlers send what they give up on; it has to exist too.

    Raises:
        TopicError: a source or sink topic is missing, or topics that a join or merge needs alike differ in partitions.
    """
    subtopologies = [_resolved(each, existing, application_id) for each in topology.subtopologies()]
    repartition = dict(topology.repartition_topics)
    known = _source_partitions(subtopologies, repartition, existing, topology)
    unread = _keep_divisions(subtopologies, repartition, known, existing, application_id)
    for name, declared in repartition.items():
        if declared.partitions is None and (found := existing.get(decorate(application_id, name))) is not None:
            known[name] = found
    _derive_repartition(subtopologies, repartition, known)
    _check_copartitions(subtopologies, repartition, known)
    _check_sinks(subtopologies, repartition, existing)
    _require("dead-letter", {dead_letter_topic} if dead_letter_topic else set(), existing)

    def real(name: str) -> str:
        return decorate(application_id, name) if name in repartition else name

    common = dict(topic_config or {})
    wished = {name: value for name, value in common.items() if name not in REPARTITION_FIXED}
    internal = [TopicSpec(real(name), known[name], {**REPARTITION_CONFIG, **wished}) for name in repartition]
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


def plan_with(topology: Topology, existing: Mapping[str, int], config: Config) -> Plan:
    """Derive the plan with what an application's configuration says; arguments and errors as for `make_plan`."""
    return make_plan(
        topology,
        existing,
        config.application_id,
        topic_config=config.topic,
        additional_retention_ms=config.windowstore_changelog_additional_retention_ms,
        dead_letter_topic=config.errors_dead_letter_queue_topic_name,
    )


def _keep_divisions(
    subtopologies: list[Subtopology],
    repartition: Mapping[str, Any],
    known: dict[str, int],
    existing: Mapping[str, int],
    application_id: str,
) -> tuple[Unread, ...]:
    """Leave out partitions of inputs beyond what the sub-topology's internal topics are divided by; they are returned."""
    unread: list[Unread] = []
    for subtopology in subtopologies:
        internal = {decorate(application_id, name) for name in subtopology.source_topics if name in repartition}
        internal |= {topic for topic, _ in _changelogs(subtopology, frozenset(repartition), application_id)}
        counts = {existing[topic] for topic in internal if topic in existing}
        if len(counts) != 1:
            continue  # it begins; or they contradict each other, and creating the missing ones says so
        (count,) = counts
        for topic in sorted(subtopology.source_topics):
            if topic not in repartition and known[topic] > count:
                unread.append(Unread(topic, count, known[topic]))
                known[topic] = count
    return tuple(unread)


def summary(plan: Plan) -> TopologySummary:
    """What the coordinator has to know. The hash covers what workers of one application must agree on: tasks and state.

    What happens inside a sub-topology may differ between two versions of an application that run side by side. So may the
    topics that match a pattern, the partitions of a topic up to the number of tasks, and the number of tasks where it follows
    the inputs: workers notice at different times.
    """
    parts = tuple(_summarised(each, plan) for each in plan.subtopologies)
    fixed = [_without_counts(each) if each.follows_inputs else each for each in parts]
    logged = [[each.id, sorted(plan.changelogs[each.id].items())] for each in plan.subtopologies]
    raw = msgspec.json.encode([fixed, logged], order="sorted")
    return TopologySummary(hashlib.sha256(raw).hexdigest()[:16], parts)


def _summarised(subtopology: Subtopology, plan: Plan) -> SubtopologySummary:
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
    _require("source", wanted, existing)
    for topic in wanted:
        known[topic] = existing[topic]
    return known


def _check_sinks(subtopologies: list[Subtopology], repartition: Mapping[str, Any], existing: Mapping[str, int]) -> None:
    """Records for a topic that does not exist would wait for it, and hold up every commit.

    Topics that a function names per record are looked up when their first record comes.
    """
    named = {sink.topic for each in subtopologies for sink in each.sinks if isinstance(sink.topic, str)}
    _require("sink", named - set(repartition), existing)


def _require(kind: str, topics: set[str], existing: Mapping[str, int]) -> None:
    missing = sorted(topic for topic in topics if topic not in existing)
    if missing:
        several = len(missing) > 1
        named = ", ".join(f"'{topic}'" for topic in missing)
        where = "'errors.dead.letter.queue.topic.name'" if kind == "dead-letter" else "the topology"
        raise TopicError(
            f"{kind} topic{'s' if several else ''} {named} {'do' if several else 'does'} not exist: create "
            f"{'them' if several else 'it'} first, or correct the name in {where}."
        )


def _derive_repartition(
    subtopologies: list[Subtopology], repartition: Mapping[str, Any], known: dict[str, int]
) -> None:
    """A repartition topic takes the count it was given, else the highest of the topics it is derived from."""
    for name, topic in repartition.items():
        if topic.partitions is not None:
            known[name] = topic.partitions
    unknown = [name for name in repartition if name not in known]
    while unknown:
        resolved = []
        for name in unknown:
            upstream = {topic for each in subtopologies if name in each.sink_topics for topic in each.source_topics}
            counts = [known[topic] for topic in upstream if topic in known]
            if counts and all(topic in known or topic == name for topic in upstream):
                known[name] = max(counts)
                resolved.append(name)
        if not resolved:
            raise TopicError(
                f"the partition count of repartition topic '{unknown[0]}' cannot be derived from its inputs: "
                f"give it one with .repartition(partitions=…)."
            )
        unknown = [name for name in unknown if name not in resolved]


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
    node = _meeting_point(subtopology, {biggest, smallest})
    place = f"'{node}'" if node else "a join or merge"
    return (
        f"topic '{biggest}' has {known[biggest]} partitions and '{smallest}' has {known[smallest]}, but {place} needs "
        f"them equal. Repartition one side with .repartition(partitions={known[biggest]}), or recreate '{smallest}' "
        f"with {known[biggest]}."
    )


def _meeting_point(subtopology: Subtopology, topics: set[str]) -> str | None:
    """The first processor that records of all the topics reach."""
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


def _resolved(subtopology: Subtopology, existing: Mapping[str, int], application_id: str) -> Subtopology:
    """With the topics that match its patterns now; internal topics never match."""
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
