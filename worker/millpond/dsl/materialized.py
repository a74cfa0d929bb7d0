"""The options of a store, as keyword arguments: Kafka Streams' Materialized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.state import (
    KeyValueStoreBuilder,
    SessionStoreBuilder,
    SlidingWindowStoreBuilder,
    VersionedKeyValueStoreBuilder,
    WindowStoreBuilder,
)
from millpond.topology.naming import validate_name

from .durations import milliseconds
from .graph import Graph
from .sessions.windows import SessionWindows
from .windows import FixedWindows, SlidingWindows

__all__ = ("Materialized", "MaterializedStore", "MaterializedWindows", "Storage")

K = TypeVar("K")
V = TypeVar("V")


class MaterializedStore(TypedDict, Generic[K, V], total=False):
    """Keyword arguments of operators that have, or may have, a store of any kind. All are optional."""

    store: str
    """Name of the store, for queries and in the name of its changelog topic; default: a generated one."""
    key: Serde[K]
    """Serde of the keys; default: the input's, else `default.key.serde`."""
    value: Serde[V]
    """Serde of the values; default: the input's if the type cannot change, else `default.value.serde`."""
    caching: bool
    """Whether only the last update per key and commit is stored and sent on; default: True."""
    logging: bool | Mapping[str, str]
    """Whether the store has a changelog topic, or that topic's configuration; default: True."""
    persistent: bool
    """Whether the store is on disk or in memory; default: as `default.dsl.store` says, which is on disk by default."""
    max_entries: int
    """The largest number of entries of a task's store, which is then in memory and forgets the entry that was read or
    put least recently, as `Stores.lruMap` in Kafka Streams; default: no maximum."""


class Materialized(MaterializedStore[K, V], Generic[K, V], total=False):
    """Keyword arguments of operators that have, or may have, a key-value store. All are optional."""

    history_retention: timedelta
    """How long, in stream time, old values of a key are kept: this makes the table versioned (KIP-914). Updates that
    are late by more than that are dropped, and counted as dropped. Joins of streams read the value at the time of the
    stream's record; `group_by()` and joins of two tables ignore updates that are not the latest of their key. The store
    needs a name, and has no cache."""

    segment_interval: timedelta
    """For versioned tables: old values expire together with those of this interval; default: by the retention."""


class MaterializedWindows(MaterializedStore[K, V], Generic[K, V], total=False):
    """Keyword arguments of windowed aggregations. All are optional."""

    retention: timedelta
    """How long, in stream time, a window is kept after its start; default and least: window size plus grace, and for
    sliding windows twice the time difference plus grace. For sessions: how long a session is kept after its end;
    default and least: gap plus grace. A closed window takes no records, however long it is kept."""


@dataclass(frozen=True)
class Storage:
    """The same options, resolved: names are generated, serdes inherited."""

    name: str
    queryable: bool
    """Whether the user named the store, and so can query it."""
    key: Serde[Any] | None
    value: Serde[Any] | None
    caching: bool = True
    logging: bool = True
    log_config: Mapping[str, str] | None = None
    persistent: bool | None = None
    """None: as `default.dsl.store` says."""
    retention_ms: int | None = None
    max_entries: int | None = None
    history_ms: int | None = None
    """For versioned stores, how long old values are kept; None for other stores."""
    segment_ms: int | None = None

    @classmethod
    def of(  # noqa: PLR0913 - options are keywords
        cls,
        options: Mapping[str, Any],
        graph: Graph,
        prefix: str,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        *,
        named: bool = False,
    ) -> Storage:
        """Return a user's options, resolved.

        Args:
            options: those of `Materialized` or `MaterializedWindows` that were given.
            graph: generates a name when none was given.
            prefix: what a generated name starts with.
            key: serde of the keys when none was given.
            value: serde of the values when none was given.
            named: whether there is no store unless the user names one.

        Raises:
            TopologyError: the name is invalid, logging is neither a flag nor a configuration, a retention is no
                duration, or options of a versioned store are missing or contradict each other.
        """
        name = options.get("store")
        logging = options.get("logging", True)
        retention = options.get("retention")
        if not isinstance(logging, bool | Mapping):
            raise TopologyError(
                "logging= takes True, False, or the changelog topic's configuration as a dictionary, not "
                f"{kind_of(logging)}."
            )
        if options.get("max_entries") is not None and options.get("persistent"):
            raise TopologyError(
                f"The store '{name or prefix.removesuffix('-')}' has max_entries=, and such stores are in memory; "
                "leave persistent=True out."
            )
        history_ms, segment_ms = _versions(options, prefix)
        stored = graph.generate_store(prefix) if name is None else validate_name(name, "store")
        if name is None and not named:
            graph.unnamed.add_store(stored, logging=logging is not False)
        return cls(
            stored,
            name is not None,
            key if (given := options.get("key")) is None else given,
            value if (given := options.get("value")) is None else given,
            options.get("caching", history_ms is None),
            bool(logging) if isinstance(logging, bool) else True,
            None if isinstance(logging, bool) else logging,
            options.get("persistent"),
            None if retention is None else milliseconds(retention, "retention"),
            options.get("max_entries"),
            history_ms,
            segment_ms,
        )

    def key_value(self) -> KeyValueStoreBuilder[Any, Any] | VersionedKeyValueStoreBuilder[Any, Any]:
        """Return the builder of a timestamped or a versioned key-value store."""
        if self.history_ms is not None:
            return VersionedKeyValueStoreBuilder(
                name=self.name,
                key=self.key,
                value=self.value,
                persistent=self.persistent is not False,
                logging=self.logging,
                log_config=self.log_config or {},
                history_retention_ms=self.history_ms,
                segment_interval_ms=self.segment_ms,
            )
        return KeyValueStoreBuilder(
            name=self.name,
            key=self.key,
            value=self.value,
            persistent=self.persistent is not False,
            in_default_place=self.persistent is None,
            timestamped=True,
            logging=self.logging,
            log_config=self.log_config or {},
            caching=self.caching,
            max_entries=self.max_entries,
        )

    def windows(self, windows: FixedWindows, *, final: bool = False) -> WindowStoreBuilder[Any, Any]:
        """Return the builder of a timestamped window store; `final` if the aggregation sends final results only.

        Raises:
            TopologyError: the retention is shorter than windows are needed.
        """
        self._check_unbounded("windows")
        needed = windows.kept_ms
        retention = needed if self.retention_ms is None else self.retention_ms
        if retention < needed:
            parts = "twice the time difference of" if isinstance(windows, SlidingWindows) else "size"
            raise TopologyError(
                f"Store '{self.name}' keeps windows for {retention} ms, but they are needed for {needed} ms ({parts} "
                f"{windows.size_ms} ms and grace {windows.grace_ms} ms); give a longer retention=."
            )
        builder = SlidingWindowStoreBuilder if isinstance(windows, SlidingWindows) else WindowStoreBuilder
        return builder(
            name=self.name,
            key=self.key,
            value=self.value,
            persistent=self.persistent is not False,
            in_default_place=self.persistent is None,
            timestamped=True,
            logging=self.logging,
            log_config=self.log_config or {},
            # As in Kafka Streams, the cache of sliding windows is off if they send final results only.
            caching=self.caching and not (final and isinstance(windows, SlidingWindows)),
            retention_ms=retention,
            time_ordered=final,
            window_size_ms=windows.size_ms,
        )

    def sessions(self, windows: SessionWindows, *, final: bool = False) -> SessionStoreBuilder[Any, Any]:
        """Return the builder of a session store; `final` if the aggregation sends final results only.

        Raises:
            TopologyError: the retention is shorter than gap plus grace.
        """
        self._check_unbounded("sessions")
        needed = windows.gap_ms + windows.grace_ms
        if self.retention_ms is not None and self.retention_ms < needed:
            raise TopologyError(
                f"Store '{self.name}' keeps sessions for {self.retention_ms} ms, but they are open for {needed} ms "
                f"(gap {windows.gap_ms} ms and grace {windows.grace_ms} ms); give a longer retention=."
            )
        return SessionStoreBuilder(
            name=self.name,
            key=self.key,
            value=self.value,
            persistent=self.persistent is not False,
            in_default_place=self.persistent is None,
            logging=self.logging,
            log_config=self.log_config or {},
            caching=self.caching and not final,
            # Kafka Streams keeps them 1 ms less, and loses open sessions (docs/differences.md).
            retention_ms=max(self.retention_ms or 0, windows.open_ms),
            time_ordered=final,
        )

    def _check_unbounded(self, kept: str) -> None:
        if self.max_entries is not None:
            raise TopologyError(
                f"Store '{self.name}' keeps {kept}, which expire by time; leave out max_entries=, which is for "
                "key-value stores."
            )


def _versions(options: Mapping[str, Any], prefix: str) -> tuple[int | None, int | None]:
    """Return history retention and segment interval of a versioned store, in ms; None where they are not given."""
    history, segment = options.get("history_retention"), options.get("segment_interval")
    what = f"The store '{options.get('store') or prefix.removesuffix('-')}'"
    if history is None:
        if segment is not None:
            raise TopologyError(
                f"{what} has segment_interval=, which only versioned stores have; give history_retention= too, or "
                "leave it out."
            )
        return None, None
    if options.get("store") is None:
        raise TopologyError(f"{what} is versioned, since it has history_retention=, but has no name; give store= too.")
    if options.get("max_entries") is not None:
        raise TopologyError(f"{what} is versioned, and versioned stores have no maximum; leave max_entries= out.")
    if options.get("caching"):
        raise TopologyError(f"{what} is versioned, and versioned stores have no cache; leave caching= out.")
    segment_ms = None if segment is None else milliseconds(segment, "segment_interval")
    if segment_ms is not None and segment_ms < 1:
        raise TopologyError(f"{what} has a segment_interval= of 0 ms; it must be at least 1 ms, or be left out.")
    return milliseconds(history, "history_retention"), segment_ms
