"""The options of a stream-stream join, as keyword arguments: Kafka Streams' StreamJoined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypedDict, TypeVar

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.serdes import Serde
from millpond.state import OuterJoinStoreBuilder, WindowStoreBuilder
from millpond.topology.naming import validate_name

from .windows import JoinWindows

__all__ = ("JoinStorage", "StreamJoined")

V = TypeVar("V")
VO = TypeVar("VO")


class StreamJoined(TypedDict, Generic[V, VO], total=False):
    """Keyword arguments of joins of two streams. All are optional."""

    this_value: Serde[V]
    """Serde of this stream's values; default: the stream's, else `default.value.serde`."""
    other_value: Serde[VO]
    """Serde of the other stream's values; default: the stream's, else `default.value.serde`."""
    store: str
    """The beginning of the names of the join's stores, and so of their changelog topics; default: generated names."""
    logging: bool | Mapping[str, str]
    """Whether the stores have changelog topics, or the configuration of these topics; default: True."""
    persistent: bool
    """Whether the stores are on disk or in memory; default: as `default.dsl.store` says."""
    this_store: WindowStoreBuilder[Any, V]
    """A store for this stream's records, with its own name, serdes, kind and changelog: `withThisStoreSupplier`. It
    retains duplicates, has the join windows' size, and keeps records for size plus grace. The store of records without
    a partner is then named after it, and is in memory if it is."""
    other_store: WindowStoreBuilder[Any, VO]
    """The same for the other stream's records: `withOtherStoreSupplier`."""


@dataclass(frozen=True)
class JoinStorage:
    """The same options, resolved."""

    windows: JoinWindows
    key: Serde[Any] | None
    store: str | None
    logging: bool
    log_config: Mapping[str, str]
    persistent: bool | None
    """None: as `default.dsl.store` says."""
    this_store: WindowStoreBuilder[Any, Any] | None = None
    other_store: WindowStoreBuilder[Any, Any] | None = None

    @classmethod
    def of(cls, what: str, options: Mapping[str, Any], windows: JoinWindows, key: Serde[Any] | None) -> JoinStorage:
        """Return a user's options, resolved.

        Raises:
            TopologyError: the store's name is invalid, logging is neither a flag nor a configuration, or a store does
                not fit the windows.
        """
        logging = options.get("logging", True)
        if not isinstance(logging, bool | Mapping):
            raise TopologyError(
                f"{what} takes for logging= True, False, or the changelog topics' configuration as a dictionary, not "
                f"{kind_of(logging)}."
            )
        this, other = (_fitting(what, option, options.get(option), windows) for option in ("this_store", "other_store"))
        if this is not None and other is not None and this.name == other.name:
            raise TopologyError(
                f"{what} has the store name '{this.name}' twice; give this_store= and other_store= names."
            )
        store = options.get("store")
        return cls(
            windows,
            key,
            None if store is None else validate_name(store, "store"),
            logging if isinstance(logging, bool) else True,
            {} if isinstance(logging, bool) else logging,
            options.get("persistent"),
            this,
            other,
        )

    def window_store(
        self, name: str, value: Serde[Any] | None, given: WindowStoreBuilder[Any, Any] | None = None
    ) -> WindowStoreBuilder[Any, Any]:
        """Return the builder of the store of one side's records: the given one, or one of its own.

        The changelog of the latter is not compacted, since no record replaces another.
        """
        windows = self.windows
        if given is not None:
            return replace(given, key=given.key or self.key, value=given.value or value)
        return WindowStoreBuilder(
            name=f"{name}-store",
            key=self.key,
            value=value,
            persistent=self.persistent is not False,
            in_default_place=self.persistent is None,
            logging=self.logging,
            log_config={**self.log_config, "cleanup.policy": "delete"},
            retention_ms=windows.size_ms + windows.grace_ms,
            window_size_ms=windows.size_ms,
            retain_duplicates=True,
        )

    def waiting_store(
        self, name: str, left: Serde[Any] | None, right: Serde[Any] | None
    ) -> OuterJoinStoreBuilder[Any, Any]:
        """Return the builder of the store of a left or outer join's records without a partner."""
        return OuterJoinStoreBuilder(
            name=f"{name}-store",
            key=self.key,
            value=left,
            right=right,
            persistent=self.persistent is not False if self.this_store is None else self.this_store.persistent,
            in_default_place=self.persistent is None and self.this_store is None,
            logging=self.logging,
            log_config=self.log_config,
        )


def _fitting(what: str, option: str, given: object, windows: JoinWindows) -> WindowStoreBuilder[Any, Any] | None:
    """Return a user's store builder; raise `TopologyError` if a join with these windows cannot use it."""
    if given is None:
        return None
    if not isinstance(given, WindowStoreBuilder):
        raise TopologyError(f"{what} takes for {option}= an mp.WindowStoreBuilder, not {kind_of(given)}.")
    builder: WindowStoreBuilder[Any, Any] = given
    if not builder.retain_duplicates:
        raise TopologyError(
            f"{what} keeps all records of a key and time, but store '{builder.name}' does not; give "
            "retain_duplicates=True to its builder."
        )
    retention = windows.size_ms + windows.grace_ms
    if (builder.window_size_ms, builder.retention_ms) != (windows.size_ms, retention):
        raise TopologyError(
            f"{what} needs a store of windows of {windows.size_ms} ms with a retention of {retention} ms (size plus "
            f"grace), but '{builder.name}' has windows of {builder.window_size_ms} ms with a retention of "
            f"{builder.retention_ms} ms; change the store or the join windows."
        )
    return builder
