"""The options of a stream-stream join, as keyword arguments: Kafka Streams' StreamJoined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """Whether the stores are on disk (True, the default) or in memory."""


@dataclass(frozen=True)
class JoinStorage:
    """The same options, resolved."""

    windows: JoinWindows
    key: Serde[Any] | None
    store: str | None
    logging: bool
    log_config: Mapping[str, str]
    persistent: bool

    @classmethod
    def of(cls, what: str, options: Mapping[str, Any], windows: JoinWindows, key: Serde[Any] | None) -> JoinStorage:
        """Return a user's options, resolved.

        Raises:
            TopologyError: the store's name is invalid, or logging is neither a flag nor a configuration.
        """
        logging = options.get("logging", True)
        if not isinstance(logging, bool | Mapping):
            raise TopologyError(
                f"{what} takes for logging= True, False, or the changelog topics' configuration as a dictionary, not "
                f"{kind_of(logging)}."
            )
        store = options.get("store")
        return cls(
            windows,
            key,
            None if store is None else validate_name(store, "store"),
            logging if isinstance(logging, bool) else True,
            {} if isinstance(logging, bool) else logging,
            options.get("persistent", True),
        )

    def window_store(self, name: str, value: Serde[Any] | None) -> WindowStoreBuilder[Any, Any]:
        """Return the builder of the store of one side's records.

        Its changelog is not compacted, since no record replaces another.
        """
        windows = self.windows
        return WindowStoreBuilder(
            name=f"{name}-store",
            key=self.key,
            value=value,
            persistent=self.persistent,
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
            persistent=self.persistent,
            logging=self.logging,
            log_config=self.log_config,
        )
