"""The key-value stores with a maximum number of entries: Kafka Streams' `lruMap`.

A put that exceeds the maximum evicts the entry that was read or put least recently. An eviction is logged as a deletion
and not forwarded. In Kafka Streams it is logged only by stores without timestamps; the changelog of the others keeps
evicted entries, so a restored store may have other entries than the lost one had.

The order of use is not committed, so that a commit costs only what changed. A store that is restored, or goes back to
the last commit, begins with the order of the puts in the changelog, as in Kafka Streams: reads before that do not
count. The backend keeps this order of its rows.

A flush logs deletions before puts. So no part of the changelog has more entries than the maximum, and a restore evicts
nothing that the store had.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from millpond.serdes import Serde
from millpond.state.backend import OrderedBackend, Rows
from millpond.state.formats import PARTITION_LENGTH

from .encoding import Produced
from .key_value import KeyValueStore, TimestampedKeyValueStore
from .staged_key_value import StagedKeyValues
from .staged_store import ChangelogRecord

__all__ = ("LruKeyValueStore", "TimestampedLruKeyValueStore")

K = TypeVar("K")
V = TypeVar("V")


class _LruMethods(StagedKeyValues[K, V], Generic[K, V]):
    """What a store with a maximum number of entries adds to a key-value store."""

    # Declared again, since a type checker does not take the types of what `_bind` assigns from the base class.
    entry: Callable[[bytes], tuple[V | None, int]]
    stage: Callable[[bytes, K, V | None, int, V | None], None]
    stage_count: Callable[[bytes, K, V | None, int, V | None], None]

    def __init__(  # noqa: PLR0913  # keyword-only where optional
        self,
        name: str,
        partition: int,
        backend: OrderedBackend,
        key: Serde[K],
        value: Serde[V],
        *,
        max_entries: int,
        caching: bool = False,
        changelog_topic: str | None = None,
    ) -> None:
        self._max: int = max_entries
        # The serialised keys of all entries, the least recently used first.
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        # Entries that a caching store evicted since the last flush, with the timestamp in ms of the put that did it.
        self._evictions: dict[bytes, int] = {}
        # Reads the keys of the backend's rows in the order in which they were written last.
        self._written_keys: Callable[[int], list[bytes]] = backend.keep_order(name)
        super().__init__(name, partition, backend, key, value, caching=caching, changelog_topic=changelog_topic)
        self._load_order()

    def _bind(self) -> None:
        super()._bind()
        self.entry = self._touching(self.peek)
        stage, stage_count = self.stage, self.stage_count
        self.stage = self._bounded(stage)
        self.stage_count = self.stage if stage_count is stage else self._bounded(stage_count)

    def _touching(self, entry: Callable[[bytes], tuple[V | None, int]]) -> Callable[[bytes], tuple[V | None, int]]:
        recent, touch = self._recent, self._recent.move_to_end

        def touching(raw_key: bytes, /) -> tuple[V | None, int]:
            if raw_key in recent:
                touch(raw_key)
            return entry(raw_key)

        return touching

    def _bounded(
        self, stage: Callable[[bytes, K, V | None, int, V | None], None]
    ) -> Callable[[bytes, K, V | None, int, V | None], None]:
        recent, dirty, most = self._recent, self._dirty, self._max
        touch, evict, caching = self._recent.move_to_end, self._evict_eldest, self.caching

        def bounded(raw_key: bytes, key: K, value: V | None, timestamp: int, old: V | None, /) -> None:
            stage(raw_key, key, value, timestamp, old)
            if not caching:
                dirty[raw_key] = dirty.pop(raw_key)  # in the order of the last puts, which a restored store has
            if value is None:
                recent.pop(raw_key, None)
                return
            recent[raw_key] = None
            touch(raw_key)
            if len(recent) > most:
                evict(timestamp)

        return bounded

    def _evict_eldest(self, timestamp: int) -> None:
        raw_key, _ = self._recent.popitem(last=False)
        self._entries[raw_key] = (None, timestamp)
        if self.caching:
            self._evictions[raw_key] = timestamp  # its last put may be forwarded yet
        else:
            self._dirty.pop(raw_key, None)
            self._dirty[raw_key] = None

    def approximate_num_entries(self) -> int:
        """Return the number of keys."""
        self._check_open()
        return len(self._recent)

    # For the runtime

    def flush(self, out: list[Produced]) -> None:
        """Turn staged writes into rows and changelog records (appended to `out`); call a cache's listener."""
        dirty, gone = self._dirty, dict[bytes, int]()
        for raw_key, timestamp in self._evictions.items():
            change = dirty.get(raw_key)
            if change is not None and change[1] is None and change[3] is None:
                del dirty[raw_key]  # put and deleted after the eviction: a flush with a listener leaves it out
            elif change is not None:
                continue
            gone[raw_key] = timestamp
        self._evictions.clear()
        if gone:
            self._encode(out, list(gone), [None] * len(gone), list(gone.values()))
        super().flush(out)  # a listener may put

    def _encode(
        self, out: list[Produced], raw_keys: Sequence[bytes], data: list[bytes | None], timestamps: list[int]
    ) -> None:
        """Log the keys that are gone first: then those that a caching store evicted after their last put, too."""
        recent = self._recent
        logged = [each if raw_key in recent else None for raw_key, each in zip(raw_keys, data, strict=True)]
        if None in logged:
            order = sorted(range(len(logged)), key=lambda at: logged[at] is not None)  # the sort is stable
            raw_keys, logged, timestamps = (
                [raw_keys[at] for at in order],
                [logged[at] for at in order],
                [timestamps[at] for at in order],
            )
        super()._encode(out, raw_keys, logged, timestamps)

    def _load_order(self) -> None:
        self._recent.clear()
        self._recent.update(dict.fromkeys(key[PARTITION_LENGTH:] for key in self._written_keys(self.partition)))

    def revert(self) -> None:
        """Discard staged, flushed and sealed writes, and so go back to the backend's rows and their order."""
        super().revert()
        self._evictions.clear()
        self._load_order()

    def restore(self, records: Iterable[ChangelogRecord]) -> Rows:
        """Return the backend rows of changelog records, to write with their offset and `metadata()`; skip null keys."""
        records = list(records)
        rows = super().restore(records)
        recent, gone = self._recent, set[bytes]()
        for key, value, _, _ in records:
            if key is None:
                continue
            recent.pop(key, None)
            if value is not None:
                recent[key] = None
                if len(recent) > self._max:
                    gone.add(recent.popitem(last=False)[0])
        rows += [(self._prefix + raw_key, None) for raw_key in sorted(gone) if raw_key not in recent]
        return rows

    def close(self) -> None:
        """Discard everything in memory; nothing is written."""
        super().close()
        self._recent.clear()
        self._evictions.clear()

    def _uncommitted_rows(self) -> set[bytes]:
        rows = super()._uncommitted_rows()
        rows.update(self._prefix + raw_key for raw_key in self._evictions)
        return rows


class LruKeyValueStore(_LruMethods[K, V], KeyValueStore[K, V]):
    """A `KeyValueStore` that keeps the entries that were read or put last, up to a maximum number."""


class TimestampedLruKeyValueStore(_LruMethods[K, V], TimestampedKeyValueStore[K, V]):
    """A `TimestampedKeyValueStore` that keeps the entries that were read or put last, up to a maximum number."""
