"""The coders of the topics of an application, from the serdes of its topology."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from millpond.errors import ConfigError
from millpond.runtime.config.model import Config
from millpond.runtime.config.parsers import nearest
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.topics.plan import changelog_topic
from millpond.serdes import Bytes, Serde, SessionWindowedSerde, TimeWindowedSerde
from millpond.snapshots.layouts import StoreKind, covered, layout_of
from millpond.snapshots.store_columns import BUFFER_TIME_LENGTH, SEQUENCE_LENGTH, SIDE_LENGTH
from millpond.state.builders import store_serdes
from millpond.state.formats import decode_buffer_value, split_session_key, split_window_key
from millpond.topology import SinkNode, SourceNode, Topology

from .coders import Coder, named, of_serde

__all__ = ("SOURCE_TOPIC", "Coders", "Parts", "coders_of_topic", "with_dead_letters", "with_windows")

SOURCE_TOPIC = "__streams.errors.topic"
"""The header of a dead letter that names the topic which it comes from."""
_FAILED_RECORD = "__streams.errors.record"
"""A dead letter with this header has the key and the value of the step that failed, as text or JSON."""


class Parts(NamedTuple):
    """The parts of a record: bytes of the application's key and value, and the window of a window store's changelog."""

    key: bytes
    value: bytes | None
    start_ms: int | None = None
    end_ms: int | None = None


class Coders(NamedTuple):
    """How the records of a topic are read and written."""

    key: Coder
    value: Coder
    split: Callable[[bytes, bytes | None], Parts] = Parts
    """f(key, value) -> the parts of a record with a key; changelogs have more in them than the application's bytes."""
    changelog: bool = False
    """Whether the topic is a changelog, to which only the application may write."""
    choose: Callable[[Any], Coders] | None = None
    """f(headers of a record) -> the coders of the record, if they depend on it."""
    readable: bool = False
    """Whether what cannot be decoded is shown as JSON or text where it is that; otherwise it is always base64."""


def coders_of_topic(topology: Topology, config: Config, topic: str) -> Coders:
    """Return the coders of a topic of an application.

    Args:
        topology: the application's topology.
        config: its configuration, with `application.id`, and with default serdes if the application needs them.
        topic: the topic's name in Kafka.

    Raises:
        ConfigError: the application neither reads nor writes the topic.
        TopologyError: the topic has no serdes, and no default ones are configured.
    """
    environment = Environment(
        config.application_id,
        Handlers(),
        internal_topics=frozenset(topology.repartition_topics),
        default_key=config.default_key_serde,
        default_value=config.default_value_serde,
    )
    names: set[str] = set()
    for node, topics in _nodes(topology):
        real = {environment.real_topic(each) for each in topics}
        names |= real
        pattern = node.pattern if isinstance(node, SourceNode) else None
        if topic in real or (pattern is not None and pattern.fullmatch(topic)):
            return Coders(
                of_serde(environment.key_serde(node.key, node.name, topic), is_key=True),
                of_serde(environment.value_serde(node.value, node.name, topic)),
            )
    for part in topology.subtopologies():
        builder: Any
        for builder in part.stores:
            changelog = changelog_topic(part, builder.name, environment.internal_topics, config.application_id)
            if changelog is None:
                continue
            names.add(changelog)
            if changelog == topic:
                return _of_changelog(environment.complete(builder), topic)
    near = nearest(topic, names)
    hint = f"did you mean '{near}'?" if near else f"its topics are {', '.join(sorted(names))}."
    raise ConfigError(f"application '{config.application_id}' neither reads nor writes topic '{topic}'; {hint}")


def with_dead_letters(of_topic: Callable[[str], Coders], topic: str) -> Coders:
    """Return coders that read a dead letter as a record of the topic that it comes from, which its headers name.

    Args:
        of_topic: f(topic) -> its coders; raises ConfigError for topics that are not the application's.
        topic: the topic that is read.
    """
    known: dict[str, Coders] = {}
    problem: ConfigError | None = None
    try:
        own = of_topic(topic)
    except ConfigError as error:
        problem, own = error, _AUTO  # dead-letter topics are none of the topology's

    def source_coders(source: str) -> Coders:
        try:
            return of_topic(source)._replace(readable=True)
        except ConfigError:
            return _AUTO  # of another application with the same dead-letter topic

    def choose(headers: Any) -> Coders:
        by_name = dict(headers or ())
        if _FAILED_RECORD in by_name:
            return _AUTO
        source = by_name.get(SOURCE_TOPIC)
        if source is None:
            if problem is not None:
                raise problem
            return own
        name = source.decode(errors="replace") if isinstance(source, bytes) else source
        if name not in known:
            known[name] = source_coders(name)
        return known[name]

    return own._replace(choose=choose)


def with_windows(key: Serde[Any], window: timedelta | None, topic: str) -> Serde[Any]:
    """Return the serde of keys in windows of a size, or in sessions for None, by Kafka Streams' format for the topic.

    In changelogs, keys in time windows have a sequence number.
    """
    if window is None:
        return SessionWindowedSerde(key)
    return TimeWindowedSerde(key, window, changelog=topic.endswith("-changelog"))


_AUTO = Coders(named("auto", "", is_key=True), named("auto", "", is_key=False))


def _nodes(topology: Topology) -> Iterator[tuple[SourceNode | SinkNode, tuple[str, ...]]]:
    for part in topology.subtopologies():
        for source in part.sources:
            yield source, source.topics
        for sink in part.sinks:
            if isinstance(sink.topic, str):
                yield sink, (sink.topic,)
    for table in topology.global_stores:
        yield table.source, table.source.topics


def _of_changelog(builder: Any, topic: str) -> Coders:
    key, value = map(of_serde, store_serdes(builder, topic))
    if not covered(builder):  # a store with `max_entries`, whose changelog has plain keys and values
        return Coders(key, value)
    size: int | None = getattr(builder, "window_size_ms", None)
    kind = layout_of(builder).kind
    if kind is StoreKind.OUTER_JOIN:  # a list of values of both sides
        value = of_serde(Bytes)

    def window(raw_key: bytes, raw_value: bytes | None) -> Parts:
        raw, start, _ = split_window_key(raw_key)
        return Parts(raw, raw_value, start, None if size is None else start + size)

    def session(raw_key: bytes, raw_value: bytes | None) -> Parts:
        raw, end, start = split_session_key(raw_key)
        return Parts(raw, raw_value, start, end)

    def buffered(raw_key: bytes, raw_value: bytes | None) -> Parts:
        return Parts(raw_key, None if raw_value is None else decode_buffer_value(raw_value)[0].new)

    def waiting(raw_key: bytes, raw_value: bytes | None) -> Parts:
        return buffered(raw_key[BUFFER_TIME_LENGTH:-SEQUENCE_LENGTH], raw_value)

    def unmatched(raw_key: bytes, raw_value: bytes | None) -> Parts:
        return Parts(raw_key[SIDE_LENGTH:], raw_value)

    split: dict[StoreKind, Callable[[bytes, bytes | None], Parts]] = {
        StoreKind.WINDOW: window,
        StoreKind.TIMESTAMPED_WINDOW: window,
        StoreKind.SESSION: session,
        StoreKind.BUFFER: buffered,
        StoreKind.JOIN_BUFFER: waiting,
        StoreKind.OUTER_JOIN: unmatched,
    }
    return Coders(key, value, split.get(kind, Parts), changelog=True)
