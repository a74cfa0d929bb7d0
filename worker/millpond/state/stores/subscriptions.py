"""The store of subscriptions of a join by a foreign key, which is read by foreign key.

Its keys begin with the foreign key. Uncommitted subscriptions are also kept by foreign key, so that reading the few of
one key does not look at all uncommitted keys of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.state.backend import Rows
from millpond.state.formats import PARTITION_LENGTH, TIMESTAMP_LENGTH, next_prefix

from .key_value import TimestampedKeyValueStore

__all__ = ("SubscriptionStore",)

_Recent = dict[bytes, dict[bytes, bytes | None]]


class SubscriptionStore(TimestampedKeyValueStore[bytes, bytes]):
    """A key-value store of bytes with timestamps, whose keys are read by what they begin with."""

    subscribe: Callable[[bytes, bytes, bytes | None, int], None]
    """Puts a subscription, or with None deletes it: foreign key's prefix, key, value, timestamp in ms."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        #: Those that are not flushed or sealed yet, and those that are sealed and maybe not in the backend, by prefix.
        self._staged_by_prefix: _Recent = {}
        self._sealed_by_prefix: _Recent = {}
        super().__init__(*arguments, **options)

    def subscribers(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """Return the keys that begin with a foreign key's prefix, in order, with their values."""
        self._check_open()
        first = self._prefix + prefix
        committed = self._backend.range(self.name, first, next_prefix(first))
        found: dict[bytes, bytes | None] = {key[PARTITION_LENGTH:]: row[TIMESTAMP_LENGTH:] for key, row in committed}
        newer = [recent[prefix] for recent in (self._sealed_by_prefix, self._staged_by_prefix) if prefix in recent]
        if newer:
            for each in newer:
                found.update(each)
            found = dict(sorted(found.items()))
        return [(key, value) for key, value in found.items() if value is not None]

    def seal(self) -> Rows:
        """See `StagedStore`."""
        staged, sealed = self._staged_by_prefix, self._sealed_by_prefix
        if sealed:
            for prefix, each in staged.items():
                sealed.setdefault(prefix, {}).update(each)
        else:
            sealed.update(staged)
        staged.clear()
        return super().seal()

    def committed(self) -> None:
        """See `StagedStore`."""
        self._sealed_by_prefix.clear()
        super().committed()

    def revert(self) -> None:
        """See `StagedStore`."""
        self._staged_by_prefix.clear()
        self._sealed_by_prefix.clear()
        super().revert()

    def close(self) -> None:
        """See `StagedStore`."""
        self._staged_by_prefix.clear()
        self._sealed_by_prefix.clear()
        super().close()

    def _bind(self) -> None:
        super()._bind()
        stage, recent = self.stage, self._staged_by_prefix

        def subscribe(prefix: bytes, key: bytes, value: bytes | None, timestamp: int, /) -> None:
            stage(key, key, value, timestamp, None)
            group = recent.get(prefix)
            if group is None:
                recent[prefix] = {key: value}
            else:
                group[key] = value

        self.subscribe = subscribe
