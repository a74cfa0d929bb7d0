"""What a task needs to know of the worker around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.topology import decorate

from .context import wall_clock_ms
from .handlers import Handlers

__all__ = ("Environment",)


@dataclass(frozen=True)
class Environment:
    """Settings and look-ups shared by all tasks of a worker."""

    application_id: str
    """Prefix of internal topics."""
    handlers: Handlers
    """What to do with records that fail."""
    internal_topics: frozenset[str] = frozenset()
    """Logical names of repartition topics."""
    default_key: Serde[Any] | None = None
    """Used where a source or sink names no key serde."""
    default_value: Serde[Any] | None = None
    """Used where a source or sink names no value serde."""
    default_timestamp_extractor: Any = None
    """Used where a source names no extractor; None takes the record's own timestamp and fails on a negative one."""
    max_task_idle_ms: int = 0
    """KIP-353; -1 never waits."""
    cache_bytes: int = 10 * 1024 * 1024
    """Record cache of the whole worker; 0 forwards every update."""
    row_cache_bytes: int = 64 * 1024 * 1024
    """Committed rows kept in memory, for the whole worker."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Application settings a processor may read."""
    partition_count: Callable[[str], int] = lambda _topic: 1
    """How many partitions a real topic has."""
    now_ms: Callable[[], int] = wall_clock_ms
    """Wall-clock time."""

    def real_topic(self, name: str) -> str:
        """The name in Kafka of a topic as a topology names it."""
        return decorate(self.application_id, name) if name in self.internal_topics else name

    def complete(self, builder: Any) -> Any:
        """A store builder with the default serdes where it names none, and no caching where there is no cache.

        Raises:
            TopologyError: there is no default either.
        """
        caching = builder.caching and self.cache_bytes > 0
        if builder.key is not None and builder.value is not None and caching == builder.caching:
            return builder
        return replace(
            builder,
            caching=caching,
            key=_resolve(builder.key, self.default_key, builder.name, "key"),
            value=_resolve(builder.value, self.default_value, builder.name, "value"),
        )

    def key_serde(self, serde: Serde[Any] | None, node: str, topic: str) -> Serde[Any]:
        """A node's key serde for a topic, the default applied.

        Raises:
            TopologyError: neither the node nor the configuration names one.
        """
        return _resolve(serde, self.default_key, node, "key").for_topic(topic, True)

    def value_serde(self, serde: Serde[Any] | None, node: str, topic: str) -> Serde[Any]:
        """As `key_serde`, for values."""
        return _resolve(serde, self.default_value, node, "value").for_topic(topic, False)


def _resolve(serde: Serde[Any] | None, default: Serde[Any] | None, node: str, part: str) -> Serde[Any]:
    chosen = serde if serde is not None else default
    if chosen is None:
        raise TopologyError(
            f"node '{node}' has no {part} serde: give it {part}=… or set 'default.{part}.serde' in the configuration."
        )
    return chosen
