"""The environment of a task: the worker's settings and lookups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.state import OuterJoinStoreBuilder
from millpond.state.builders import store_serdes
from millpond.topology import GlobalStore, TaskId, changelog_topic, decorate
from millpond.topology.user_metrics import UserMetrics

from .context import Outgoing, TaskContext, wall_clock_ms
from .drop_log import DropLog
from .handlers import Handlers
from .partitioner_check import PartitionerCheck
from .quiet_windows import QuietLog
from .tracing import Tracing

__all__ = ("Environment",)


@dataclass(frozen=True)
class Environment:
    """The settings and lookups that all tasks of a worker share."""

    application_id: str
    """Prefix of internal topics."""
    handlers: Handlers
    """Exception handlers for records that fail."""
    internal_topics: frozenset[str] = frozenset()
    """Repartition topics, by their names in the topology."""
    default_key: Serde[Any] | None = None
    """Key serde of sources and sinks that name none."""
    default_value: Serde[Any] | None = None
    """Value serde of sources and sinks that name none."""
    default_timestamp_extractor: Any = None
    """Extractor of sources that name none; None takes the record's timestamp, and fails on a negative one."""
    max_task_idle_ms: int = 0
    """How long a task waits for an empty input, in milliseconds (KIP-353); -1 never waits."""
    cache_bytes: int = 10 * 1024 * 1024
    """Size of the record caches of the whole worker, in bytes; 0 forwards every update."""
    dsl_stores_in_memory: bool = False
    """Whether stores of the DSL are in memory where the topology does not say where they are."""
    row_cache_bytes: int = 64 * 1024 * 1024
    """Memory for decoded committed rows of the whole worker, in bytes."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings that a processor may read, by key."""
    partition_count: Callable[[str], int] = lambda _topic: 1
    """Returns the partition count of a topic, by its name in Kafka."""
    now_ms: Callable[[], int] = wall_clock_ms
    """Returns the wall-clock time in epoch milliseconds."""
    metrics: UserMetrics = field(default_factory=UserMetrics)
    """The definitions of the application's own metrics, and `metrics.recording.level`."""
    drop_log: DropLog = field(default_factory=DropLog)
    """The log lines about dropped records."""
    quiet_log: QuietLog = field(default_factory=QuietLog)
    """The log lines about final results that wait while the input is quiet."""
    partitioners: PartitionerCheck = field(default_factory=PartitionerCheck)
    """What was seen of the partitioners of input topics."""
    tracing: Tracing | None = None
    """Makes the spans of records; None if they are not traced."""
    task_directory: Callable[[TaskId], Path] | None = None
    """Returns the directory of a task for files of the application; None where there is none."""

    def context(self, task_id: TaskId, outbox: list[Outgoing]) -> TaskContext:
        """Return the context of a new task."""
        return TaskContext(
            task_id,
            self.application_id,
            self.settings,
            outbox,
            self.now_ms,
            key_serde=self.default_key,
            value_serde=self.default_value,
            directory=self.task_directory,
            metrics=self.metrics,
            drop_log=self.drop_log,
        )

    def real_topic(self, name: str) -> str:
        """Return the name in Kafka of a topic of the topology."""
        return decorate(self.application_id, name) if name in self.internal_topics else name

    def complete(self, builder: Any) -> Any:
        """Return a store builder with the worker's defaults: its serdes, caching only with a cache, where rows are.

        Raises:
            TopologyError: neither the store nor the configuration names a serde.
        """
        if isinstance(builder, OuterJoinStoreBuilder) and builder.right is None:
            builder = replace(builder, right=_resolve(None, self.default_value, builder.name, "value"))
        if builder.in_default_place and builder.persistent and self.dsl_stores_in_memory:
            builder = replace(builder, persistent=False)
        caching = builder.caching and self.cache_bytes > 0
        if builder.key is None or builder.value is None or caching != builder.caching:
            builder = replace(
                builder,
                caching=caching,
                key=_resolve(builder.key, self.default_key, builder.name, "key"),
                value=_resolve(builder.value, self.default_value, builder.name, "value"),
            )
        if builder.logging or builder.source_topic is not None:
            return builder
        # As in Kafka Streams, serdes with a schema registry get the name that the changelog would have.
        return _of_topic(builder, decorate(self.application_id, changelog_topic(builder.name)))

    def complete_global(self, definition: GlobalStore) -> Any:
        """Return the builder of a global store as `complete` does, its serdes made for the store's topic.

        Raises:
            TopologyError: neither the store nor the configuration names a serde.
        """
        return _of_topic(self.complete(definition.store), definition.source.topics[0])

    def key_serde(self, serde: Serde[Any] | None, node: str, topic: str) -> Serde[Any]:
        """Return the key serde of a node for a topic, or the default one.

        Raises:
            TopologyError: neither the node nor the configuration names a serde.
        """
        return _resolve(serde, self.default_key, node, "key").for_topic(topic, True)  # noqa: FBT003 - public, positional

    def value_serde(self, serde: Serde[Any] | None, node: str, topic: str) -> Serde[Any]:
        """Return the value serde of a node for a topic, or the default one; raises as `key_serde`."""
        return _resolve(serde, self.default_value, node, "value").for_topic(topic, False)  # noqa: FBT003 - public, positional


def _of_topic(builder: Any, topic: str) -> Any:
    key, value = store_serdes(builder, topic)
    if isinstance(builder, OuterJoinStoreBuilder) and builder.right is not None:
        return replace(builder, key=key, value=value, right=builder.right.for_topic(topic, False))  # noqa: FBT003
    return replace(builder, key=key, value=value)


def _resolve(serde: Serde[Any] | None, default: Serde[Any] | None, node: str, part: str) -> Serde[Any]:
    chosen = serde if serde is not None else default
    if chosen is None:
        raise TopologyError(
            f"node '{node}' has no {part} serde: give it {part}=… or set 'default.{part}.serde' in the configuration."
        )
    return chosen
