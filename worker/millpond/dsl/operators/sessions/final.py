"""The body of an aggregation by session that sends final results only (KIP-825)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.windowing.finals import FinalResults
from millpond.dsl.sessions.windows import SessionWindows
from millpond.serdes import Windowed
from millpond.topology import NodeContext, StreamForward

__all__ = ("AggregateFinalSessions",)

STREAM_TIME = "stream_time"


@dataclass(frozen=True, slots=True)
class AggregateFinalSessions:
    """A body that aggregates per key and session, as `AggregateSessions`, and forwards each session once."""

    store: str
    windows: SessionWindows
    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    merger: Callable[[Any, Any, Any], Any]
    counting: bool = False
    """Whether the aggregates are counts."""

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each record."""
        store, initializer, aggregator, merge = node.store(self.store), self.initializer, self.aggregator, self.merger
        serialize, find = store.serialize_key, store.find
        stage = store.stage_count if self.counting else store.stage
        failed, dropped, late = node.failed, node.dropped, node.late
        gap, retention = self.windows.gap_ms, store.retention_ms
        open_for = gap + self.windows.grace_ms
        finals = _final_results(node, store)
        note, times, check, unsent = finals.note, finals.times, finals.check, finals.by_time
        stream_time = -1

        def aggregate(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901 - one flat function per record
            nonlocal stream_time
            if key is None:
                return dropped(Drop.NULL_KEY)
            if timestamp > stream_time:
                stream_time = timestamp
            if times and times[0] < timestamp - retention:
                finals.save(timestamp, stream_time - open_for)
            closed = False
            try:
                raw = serialize(key)
                new = initializer()
                start = end = timestamp
                # The store keeps closed sessions, for their sending and for queries; no record joins them.
                merged = find(raw, max(timestamp - gap, stream_time - open_for), timestamp + gap)
                for session in merged:
                    new = merge(key, new, session[2])
                    if session[1] < start:
                        start = session[1]
                    if session[0] > end:
                        end = session[0]
                closed = end < stream_time - open_for
                if not closed:
                    if start != end:
                        for session_end, session_start, _ in merged:
                            stage(raw, key, session_start, session_end, None, timestamp)
                            if session_end in unsent:
                                unsent[session_end].discard((session_start, raw))
                    new = aggregator(key, value, new)
                    stage(raw, key, start, end, new, timestamp)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if closed:
                late(start, end, end + open_for, stream_time)
            else:
                note(end, (start, raw))
            check(stream_time - open_for)

        node.holds_back(self.store, lambda: finals.waiting(stream_time, open_for))
        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        return aggregate


def _final_results(node: NodeContext, store: Any) -> FinalResults:
    entry, decode = store.entry, store.key_serde.deserialize

    def in_order(sessions: Iterable[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        # In Kafka Streams, too, the order depends on the kind of the store.
        return sorted(sessions) if store.persistent else sorted(sessions, key=lambda each: (each[1], -each[0]))

    def read(end: int, session: tuple[int, bytes]) -> tuple[Windowed[Any], Any, int] | None:
        start, raw = session
        value = entry(raw, start, end)
        return None if value is None else (Windowed(decode(raw), start, end), value, end)

    def unsent(first: int | None, last: int) -> Iterator[tuple[int, tuple[int, bytes]]]:
        found = ((end, (start, raw)) for raw, start, end in store.unsent(first, last))
        return iter([(first, each) for each in in_order(place for _, place in found)]) if first == last else found

    return FinalResults(node, store, 1, read, unsent, in_order)
