"""Store builders: the definition of a store in a topology, from which each task builds its own store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar, cast

from millpond.calls import checked_class
from millpond.checks import kind_of
from millpond.errors import ConfigError
from millpond.serdes import Bytes, Serde
from millpond.state.stores.buffers.join_buffer import JoinBuffer
from millpond.state.stores.buffers.time_ordered_buffer import TimeOrderedBuffer
from millpond.state.stores.by_key.duplicate_windows import DuplicateWindowStore
from millpond.state.stores.by_key.windows_by_key import TimeOrderedWindowsByKey, WindowsByKey
from millpond.state.stores.key_value import KeyValueStore, TimestampedKeyValueStore
from millpond.state.stores.lru import LruKeyValueStore, TimestampedLruKeyValueStore
from millpond.state.stores.outer_join import OuterJoinStore
from millpond.state.stores.session import SessionStore
from millpond.state.stores.subscriptions import SubscriptionStore
from millpond.state.stores.time_ordered import TimeOrderedSessionStore, TimeOrderedWindowStore
from millpond.state.stores.versioned.store import VersionedKeyValueStore
from millpond.state.stores.window import TimestampedWindowStore, WindowStore

from .backend import Backend, OrderedBackend

__all__ = (
    "JoinBufferBuilder",
    "KeyValueStoreBuilder",
    "OuterJoinStoreBuilder",
    "SessionStoreBuilder",
    "SlidingWindowStoreBuilder",
    "StoreBuilder",
    "SubscriptionStoreBuilder",
    "TimeOrderedBufferBuilder",
    "VersionedKeyValueStoreBuilder",
    "WindowStoreBuilder",
    "store_serdes",
)

K = TypeVar("K")
V = TypeVar("V")

_MAX_LONG = 2**63 - 1
_DEFAULT_ADDITIONAL_RETENTION_MS = 86_400_000
_VERSIONED_COMPACTION_LAG_MS = 86_400_000


@dataclass(frozen=True, kw_only=True, eq=False)
class StoreBuilder(Generic[K, V]):
    """The definition of a store; this class has the fields of all kinds."""

    name: str
    """The store's name, which is also part of the changelog topic's name."""

    key: Serde[K] | None = None
    """The key serde; None is the configured default, which the runtime fills in before it builds the store."""

    value: Serde[V] | None = None
    """The value serde; None is the configured default."""

    persistent: bool = True
    """True: in the worker's state file. False: in memory, restored from the changelog at every start."""

    logging: bool = True
    """Whether changes go to a changelog topic. Without one a store is lost with its disk."""

    log_config: Mapping[str, str] = field(default_factory=dict)
    """Topic configuration of the changelog, over its defaults."""

    caching: bool = False
    """Whether the operator that owns the store sends updates downstream only at flush, one per key."""

    source_topic: str | None = None
    """The topic that serves as the changelog, where the store only repeats a topic: the store is restored from it, and
    nothing is logged."""

    in_default_place: bool = False
    """Whether `default.dsl.store` decides if the store is in memory: operators set it if `persistent` is not given."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("a state store needs a name: it is part of its changelog topic's name")

    def restored_from(self, topic: str) -> Self:
        """Return the same builder, whose store is restored from a source topic and has no changelog of its own."""
        return replace(self, source_topic=topic, logging=False)

    def changelog_config(
        self, defaults: Mapping[str, str] | None = None, additional_retention_ms: int = _DEFAULT_ADDITIONAL_RETENTION_MS
    ) -> dict[str, str]:
        """Return the changelog topic's configuration.

        Args:
            defaults: settings for all internal topics (`topic.` in the configuration); `log_config` overrides them.
            additional_retention_ms: `windowstore.changelog.additional.retention.ms`.
        """
        return {
            "message.timestamp.type": "CreateTime",
            "cleanup.policy": "compact",
            **(defaults or {}),
            **self.log_config,
        }

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> Any:
        """Return the store of one task.

        Args:
            partition: the task's partition.
            backend: the backend of committed rows; the worker's state file if `persistent`, else one in memory.
            changelog_topic: the real name of the changelog, or of the source topic that serves as one; serdes with a
                schema registry are made for it. None when the store has neither.
        """
        raise NotImplementedError

    def _logged_to(self, topic: str | None) -> str | None:
        return topic if self.logging and self.source_topic is None else None


def store_serdes(builder: StoreBuilder[K, V], topic: str | None) -> tuple[Serde[K], Serde[V]]:
    """Return the serdes of a store's keys and values, made for its changelog topic; None stands for no topic.

    Raises:
        ConfigError: a serde is missing.
    """
    if builder.key is None or builder.value is None:
        missing = "key" if builder.key is None else "value"
        raise ConfigError(
            f"store '{builder.name}' has no {missing} serde: give it one, or set 'default.{missing}.serde'"
        )
    if topic is None:
        return builder.key, builder.value
    return builder.key.for_topic(topic, True), builder.value.for_topic(topic, False)  # noqa: FBT003  # the serdes' API


@checked_class
@dataclass(frozen=True, kw_only=True, eq=False)
class KeyValueStoreBuilder(StoreBuilder[K, V]):
    """A key-value store."""

    timestamped: bool = False
    """Whether the store keeps the timestamp of each value; all stores of the DSL do."""

    max_entries: int | None = None
    """The largest number of entries of a task's store: a put that exceeds it evicts the entry that was read or put
    least recently. Such a store is in memory, whatever `persistent` says. As `Stores.lruMap` in Kafka Streams."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_entries is None:
            return
        if not isinstance(self.max_entries, int) or isinstance(self.max_entries, bool):
            raise ConfigError(
                f"store '{self.name}': max_entries= is a number of entries, not {kind_of(self.max_entries)}"
            )
        if self.max_entries < 0:
            raise ConfigError(f"store '{self.name}': max_entries= must not be negative, but is {self.max_entries}")
        object.__setattr__(self, "persistent", False)

    def build(
        self, partition: int, backend: Backend, changelog_topic: str | None = None
    ) -> KeyValueStore[K, V] | TimestampedKeyValueStore[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        if self.max_entries is not None:
            bounded = TimestampedLruKeyValueStore[K, V] if self.timestamped else LruKeyValueStore[K, V]
            return bounded(
                self.name,
                partition,
                cast("OrderedBackend", backend),
                *store_serdes(self, changelog_topic),
                max_entries=self.max_entries,
                caching=self.caching,
                changelog_topic=self._logged_to(changelog_topic),
            )
        kind = TimestampedKeyValueStore[K, V] if self.timestamped else KeyValueStore[K, V]
        return kind(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            caching=self.caching,
            changelog_topic=self._logged_to(changelog_topic),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SubscriptionStoreBuilder(KeyValueStoreBuilder[bytes, bytes]):
    """The store of subscriptions of a join by a foreign key: a key-value store with timestamps."""

    key: Serde[bytes] | None = Bytes
    timestamped: bool = True

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> SubscriptionStore:
        """Return the store of one task; see `StoreBuilder.build`."""
        return SubscriptionStore(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            changelog_topic=self._logged_to(changelog_topic),
        )


@checked_class
@dataclass(frozen=True, kw_only=True, eq=False)
class VersionedKeyValueStoreBuilder(StoreBuilder[K, V]):
    """A store of the values that each key had, by timestamp (KIP-889)."""

    history_retention_ms: int
    """How long old versions can be read, and how late a put may be, in ms of stream time."""

    segment_interval_ms: int | None = None
    """The length of a segment in ms: versions expire by segments of the times at which they ended. None: Kafka Streams'
    default for the history retention."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.history_retention_ms, int):
            raise ConfigError(
                f"store '{self.name}': history_retention_ms= is in whole milliseconds, not "
                f"{kind_of(self.history_retention_ms)}"
            )
        if self.history_retention_ms < 0:
            raise ConfigError(
                f"store '{self.name}': the history retention must not be negative, but is "
                f"{self.history_retention_ms} ms"
            )
        if self.segment_interval_ms is not None and not isinstance(self.segment_interval_ms, int):
            raise ConfigError(
                f"store '{self.name}': segment_interval_ms= is in whole milliseconds, not "
                f"{kind_of(self.segment_interval_ms)}"
            )
        if self.segment_interval_ms is not None and self.segment_interval_ms < 1:
            raise ConfigError(
                f"store '{self.name}': a segment must be at least 1 ms long, not {self.segment_interval_ms} ms"
            )
        if self.caching:
            raise ConfigError(
                f"store '{self.name}' is versioned, and versioned stores have no cache; leave caching= out"
            )

    @property
    def interval_ms(self) -> int:
        """The length of a segment in ms: the given one, or Kafka Streams' default for the history retention."""
        if self.segment_interval_ms is not None:
            return self.segment_interval_ms
        return _versioned_interval(self.history_retention_ms)

    def changelog_config(
        self, defaults: Mapping[str, str] | None = None, additional_retention_ms: int = _DEFAULT_ADDITIONAL_RETENTION_MS
    ) -> dict[str, str]:
        """Return the changelog topic's configuration, which compacts only after the retention; see `StoreBuilder`."""
        config = super().changelog_config(defaults, additional_retention_ms)
        if "min.compaction.lag.ms" not in self.log_config:
            config["min.compaction.lag.ms"] = str(
                min(self.history_retention_ms + _VERSIONED_COMPACTION_LAG_MS, _MAX_LONG)
            )
        return config

    def build(
        self, partition: int, backend: Backend, changelog_topic: str | None = None
    ) -> VersionedKeyValueStore[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        return VersionedKeyValueStore(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            history_retention_ms=self.history_retention_ms,
            segment_interval_ms=self.interval_ms,
            changelog_topic=self._logged_to(changelog_topic),
        )


def _versioned_interval(history_retention_ms: int) -> int:
    """Return Kafka Streams' default length of a segment of a versioned store, in ms."""
    for limit, parts, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if history_retention_ms <= limit:
            return max(history_retention_ms // parts, least)
    return max(history_retention_ms // 24, 300_000)


@checked_class
@dataclass(frozen=True, kw_only=True, eq=False)
class WindowStoreBuilder(StoreBuilder[K, V]):
    """A store of values by key and window start."""

    retention_ms: int
    """How long windows are kept after the stream time reached their start, in ms; at least the window size."""

    window_size_ms: int
    """The length of a window in ms, from which reads compute the windows' ends."""

    timestamped: bool = False
    """Whether the store keeps the timestamp of each value; those of the DSL's aggregations do."""

    retain_duplicates: bool = False
    """Whether the store keeps all values that are put for a key and window, as stream-stream joins need it."""

    time_ordered: bool = False
    """Whether iterators over all keys are in the order of window starts, as `EmitStrategy.on_window_close()` needs it;
    such a store has timestamps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for given, what in ((self.retention_ms, "retention_ms"), (self.window_size_ms, "window_size_ms")):
            if not isinstance(given, int):
                raise ConfigError(f"store '{self.name}': {what}= is in whole milliseconds, not {kind_of(given)}")
        if self.window_size_ms < 0 or (self.window_size_ms == 0 and not self.retain_duplicates):
            raise ConfigError(f"store '{self.name}': the window size must be positive, not {self.window_size_ms} ms")
        if self.retain_duplicates and (self.timestamped or self.caching):
            raise ConfigError(
                f"store '{self.name}' retains duplicates, and such a store has neither timestamps nor a cache; leave "
                f"{'timestamped' if self.timestamped else 'caching'}= out"
            )
        if self.time_ordered and not self.timestamped:
            raise ConfigError(f"store '{self.name}' is ordered by time, and such a store needs timestamped=True")
        if self.retention_ms < self.window_size_ms:
            raise ConfigError(
                f"store '{self.name}': a retention of {self.retention_ms} ms is shorter than its windows of "
                f"{self.window_size_ms} ms: windows would expire while they are open"
            )

    def changelog_config(
        self, defaults: Mapping[str, str] | None = None, additional_retention_ms: int = _DEFAULT_ADDITIONAL_RETENTION_MS
    ) -> dict[str, str]:
        """Return the changelog topic's configuration, which deletes old records, and compacts; see `StoreBuilder`."""
        # No record replaces another one of a store with duplicates.
        policy = "delete" if self.retain_duplicates else "compact,delete"
        config = super().changelog_config({"cleanup.policy": policy, **(defaults or {})})
        return _keeping_windows(self, config, self.retention_ms + additional_retention_ms)

    def build(
        self, partition: int, backend: Backend, changelog_topic: str | None = None
    ) -> WindowStore[K, V] | TimestampedWindowStore[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        if self.retain_duplicates:
            return DuplicateWindowStore(
                self.name,
                partition,
                backend,
                *store_serdes(self, changelog_topic),
                retention_ms=self.retention_ms,
                window_size_ms=self.window_size_ms,
                persistent=self.persistent,
                changelog_topic=self._logged_to(changelog_topic),
            )
        return self._kind()(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            retention_ms=self.retention_ms,
            window_size_ms=self.window_size_ms,
            persistent=self.persistent,
            caching=self.caching,
            changelog_topic=self._logged_to(changelog_topic),
        )

    def _kind(self) -> type[WindowStore[K, V] | TimestampedWindowStore[K, V]]:
        if self.time_ordered:
            return TimeOrderedWindowStore[K, V]
        return TimestampedWindowStore[K, V] if self.timestamped else WindowStore[K, V]


class SlidingWindowStoreBuilder(WindowStoreBuilder[K, V]):
    """The store of an aggregation by sliding windows, in which a record finds all windows of its key at once."""

    def _kind(self) -> type[WindowStore[K, V] | TimestampedWindowStore[K, V]]:
        return TimeOrderedWindowsByKey[K, V] if self.time_ordered else WindowsByKey[K, V]


@checked_class
@dataclass(frozen=True, kw_only=True, eq=False)
class SessionStoreBuilder(StoreBuilder[K, V]):
    """A store of values by key and session, which is a start and an end, both inclusive."""

    retention_ms: int
    """How long sessions are kept after the stream time reached their end, in ms; at least the inactivity gap plus the
    grace."""

    time_ordered: bool = False
    """Whether the store is for `EmitStrategy.on_window_close()`, which reads the sessions of all keys by their ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.retention_ms, int):
            raise ConfigError(
                f"store '{self.name}': retention_ms= is in whole milliseconds, not {kind_of(self.retention_ms)}"
            )
        if self.retention_ms < 0:
            raise ConfigError(f"store '{self.name}': the retention must not be negative, but is {self.retention_ms} ms")

    def changelog_config(
        self, defaults: Mapping[str, str] | None = None, additional_retention_ms: int = _DEFAULT_ADDITIONAL_RETENTION_MS
    ) -> dict[str, str]:
        """Return the changelog topic's configuration, which compacts and deletes old records; see `StoreBuilder`."""
        config = super().changelog_config({"cleanup.policy": "compact,delete", **(defaults or {})})
        return _keeping_windows(self, config, self.retention_ms + additional_retention_ms)

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> SessionStore[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        kind = TimeOrderedSessionStore[K, V] if self.time_ordered else SessionStore[K, V]
        return kind(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            retention_ms=self.retention_ms,
            persistent=self.persistent,
            caching=self.caching,
            changelog_topic=self._logged_to(changelog_topic),
        )


def _keeping_windows(builder: StoreBuilder[Any, Any], config: dict[str, str], retention_ms: int) -> dict[str, str]:
    """Return a changelog's configuration with the retention that the windows need, unless the store has its own."""
    # A default for all internal topics must not shorten the retention that the windows need; the store's own may.
    if "retention.ms" not in builder.log_config:
        config["retention.ms"] = str(min(retention_ms, _MAX_LONG))
    return config


@dataclass(frozen=True, kw_only=True, eq=False)
class TimeOrderedBufferBuilder(StoreBuilder[K, V]):
    """The buffer behind `suppress`; its key serde is that of the (usually windowed) keys it holds."""

    count_bytes: bool = False
    """Whether the buffer counts its bytes at each record, for a bound in bytes; else at each commit."""

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> TimeOrderedBuffer[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        return TimeOrderedBuffer(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            changelog_topic=self._logged_to(changelog_topic),
            count_bytes=self.count_bytes,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class OuterJoinStoreBuilder(StoreBuilder[K, V]):
    """The store of records that a left or outer join of streams has not joined yet: Kafka Streams' ListValueStore.

    Its key serde is that of the records' keys, its value serde that of the left side's values.
    """

    right: Serde[Any] | None = None
    """The serde of the right side's values; None is the configured default."""

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> OuterJoinStore[K]:
        """Return the store of one task; see `StoreBuilder.build`."""
        key, left = store_serdes(self, changelog_topic)
        _, right = store_serdes(replace(self, value=self.right), changelog_topic)
        return OuterJoinStore(
            self.name, partition, backend, key, left, right, changelog_topic=self._logged_to(changelog_topic)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class JoinBufferBuilder(StoreBuilder[K, V]):
    """The buffer of a join of a stream with a table that has a grace period; its serdes are those of the stream."""

    def build(self, partition: int, backend: Backend, changelog_topic: str | None = None) -> JoinBuffer[K, V]:
        """Return the store of one task; see `StoreBuilder.build`."""
        return JoinBuffer(
            self.name,
            partition,
            backend,
            *store_serdes(self, changelog_topic),
            changelog_topic=self._logged_to(changelog_topic),
        )
