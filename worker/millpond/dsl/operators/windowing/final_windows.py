"""The body of an aggregation by tumbling or hopping windows that sends final results only (KIP-825)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.windows import SlidingWindows, TimeWindows
from millpond.serdes import Windowed
from millpond.state.formats import window_suffix
from millpond.topology import NodeContext, StreamForward

from .finals import FinalResults

__all__ = ("AggregateFinalWindows", "final_results")

STREAM_TIME = "stream_time"

_NO_BYTE = 256


@dataclass(frozen=True, slots=True)
class AggregateFinalWindows:
    """A body that aggregates per key and window, starting with `initializer()`, and forwards each window once."""

    store: str
    windows: TimeWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    counting: bool = False
    """Whether the aggregates are counts."""

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each record."""
        store, initializer, aggregator = node.store(self.store), self.initializer, self.aggregator
        serialize, entry = store.serialize_key, store.entry
        stage = store.stage_count if self.counting else store.stage
        failed, dropped, late = node.failed, node.dropped, node.late
        size, advance, grace = self.windows.size_ms, self.windows.advance_ms, self.windows.grace_ms
        open_for, reach, retention = size + grace, advance - size, store.retention_ms
        finals = final_results(node, store, self.windows)
        note, times, check = finals.note, finals.times, finals.check
        stream_time = -1

        def aggregate(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901 - one flat function per record
            nonlocal stream_time
            if key is None:
                return dropped(Drop.NULL_KEY)
            if timestamp > stream_time:
                stream_time = timestamp
            if times and times[0] < timestamp - retention:
                finals.save(timestamp, stream_time - grace)
            first = timestamp + reach
            first = first - first % advance if first > 0 else 0
            try:
                raw = serialize(key)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            for start in range(first, timestamp + 1, advance):
                if start + open_for <= stream_time:
                    late(start, start + size, start + open_for, stream_time)
                    continue
                try:
                    old, latest = entry(raw, start)
                    new = aggregator(key, value, initializer() if old is None else old)
                    if old is None or latest < timestamp:
                        latest = timestamp
                    # The store keeps no timestamp of a deletion: it gets that of its record.
                    stage(raw, start, key, new, timestamp if new is None else latest, old)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                if old is None:
                    note(start, raw)
            check(stream_time - grace)

        node.holds_back(self.store, lambda: finals.waiting(stream_time, grace))
        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        return aggregate


def final_results(node: NodeContext, store: Any, windows: TimeWindows | SlidingWindows) -> FinalResults:
    """Return the windows of a task that have not been sent; they are sent in the order of start and serialised key."""
    entry, decode, size = store.entry, store.key_serde.deserialize, windows.size_ms

    def read(start: int, raw: bytes) -> tuple[Windowed[Any], Any, int] | None:
        value, timestamp = entry(raw, start)
        return None if value is None else (Windowed(decode(raw), start, start + size), value, timestamp)

    def unsent(first: int | None, last: int) -> Iterator[tuple[int, bytes]]:
        found = ((start, raw) for raw, start in store.unsent(first, last))
        return ((last, raw) for raw in _ascending(last, (raw for _, raw in found))) if first == last else found

    # The end of a sliding window is inclusive.
    reach = size + 1 if isinstance(windows, SlidingWindows) else size
    return FinalResults(node, store, reach, read, unsent)


def _ascending(start: int, keys: Iterable[bytes]) -> Iterator[bytes]:
    """Put serialised keys of one window start, which come in the order of their rows, into their own order.

    The start follows the key in a row. So a key comes after those that begin with it and go on with zero bytes; only
    these wait for it.
    """
    suffix = window_suffix(start)
    waiting: list[bytes] = []
    for raw in keys:
        row = raw + suffix
        while waiting and _last_row_before(waiting[0], suffix) < row:
            yield heappop(waiting)
        if waiting or (suffix[0] >= min(raw, default=_NO_BYTE) and _last_row_before(raw, suffix) > row):
            heappush(waiting, raw)
        else:
            yield raw
    while waiting:
        yield heappop(waiting)


def _last_row_before(raw: bytes, suffix: bytes) -> bytes:
    """Return the last row that a smaller key than this one, which begins with it, may have."""
    return max((raw[:length] + suffix for length in range(len(raw))), default=b"")
