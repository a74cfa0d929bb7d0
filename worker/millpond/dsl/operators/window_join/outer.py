"""The body of one side of a left or outer stream-stream join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.state.formats import unpack_timestamp
from millpond.state.stores.outer_join import OuterJoinStore, side_prefix
from millpond.state.unreadable_rows import row_error
from millpond.topology import NodeContext, StreamForward

from .inner import joiner_of_side
from .times import TimeTracker, time_tracker

__all__ = ("OuterJoinWindow",)

_KEY_AT = 9
"""The place of the record's key in a key of the store of waiting records: after its time and its side."""


@dataclass(frozen=True, slots=True)
class OuterJoinWindow:
    """A body that joins each record with the records of the other side whose time is near, in the order of their times.

    A record that finds none is sent without a partner at once if its window has closed. Else it waits in a store, and
    is sent before the first record of either side whose time is beyond its window and the grace. A record of the other
    side that joins it in the meantime removes it from the store.

    A result has the larger of the two timestamps; one without a partner has its own, and the headers of the record that
    let it be sent. Records without a value are dropped and counted. Those without a key are sent at once, without a
    partner (KIP-962); a left join drops and counts those of its right side.
    """

    join: str
    """The name of the join."""
    other_store: str
    waiting_store: str
    before_ms: int
    """How much earlier than the left record the right one may be."""
    after_ms: int
    """How much later than the left record the right one may be."""
    grace_ms: int
    combine: Callable[..., Any]
    with_key: bool
    right: bool
    """Whether this is the right side, whose value the joiner takes last."""
    unmatched: bool
    """Whether this side's records are sent without a partner, too."""

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901, PLR0915 - one flat function per record
        """Return the function that one task calls for each record."""
        store, waiting = node.store(self.other_store), node.store(self.waiting_store)
        serialize, matches = store.serialize_key, store.matches
        decode = None if store.value_serde.immutable else store.value_serde.deserialize
        combine = joiner_of_side(self.combine, with_key=self.with_key, right=self.right)
        left, unmatched = not self.right, self.unmatched
        before, after = (self.before_ms, self.after_ms) if left else (self.after_ms, self.before_ms)
        open_for = after + self.grace_ms
        others_waiting, serialize_waiting = waiting.waiting(left=not left), waiting.serialize_key
        one_key = serialize is serialize_waiting
        add, discard, encoded = waiting.add, waiting.discard, waiting.encoded
        times = time_tracker(node, waiting, right=self.right)
        send_closed = self._sender(node, waiting, times)
        forward, failed, dropped, unjoined, name = node.forward, node.failed, node.dropped, node.unjoined, self.join

        def join(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901
            advanced = timestamp >= times.stream_time
            if advanced:
                times.stream_time = timestamp
            if value is None or (key is None and not unmatched):
                return dropped(Drop.NULL_VALUE if value is None else Drop.NULL_KEY)
            if key is None:
                try:
                    joined = combine(None, value, None)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                return forward(None, joined, timestamp)
            if advanced and waiting.min_time + open_for < timestamp:
                send_closed(timestamp)
            last = timestamp + after
            if last < 0:
                # As in Kafka Streams: a range that ends before the epoch becomes that of time 0.
                last = 0
            try:
                raw = serialize(key)
                found = matches(raw, timestamp - before, last)
                if not found:
                    if timestamp - before <= store.floor:
                        unjoined(name, store.floor - timestamp + before)
                    if not unmatched:
                        return
                    if last >= times.stream_time:
                        raw = raw if one_key else serialize_waiting(key)
                        add(side_prefix(timestamp, left) + raw, encoded(key, value, left=left), timestamp)
                        return
                    joined = combine(key, value, None)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if not found:
                return forward(key, joined, timestamp)
            for time, _, other in found:
                if decode is not None:
                    try:
                        other = decode(other)
                    except Exception as error:  # noqa: BLE001 - the serdes are the user's
                        return failed(row_error(error, store), key, value, timestamp)
                try:
                    if others_waiting or waiting.incomplete:
                        discard(side_prefix(time, not left) + (raw if one_key else serialize_waiting(key)), timestamp)
                    joined = combine(key, value, other)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                forward(key, joined, max(timestamp, time))

        return join

    def _sender(self, node: NodeContext, waiting: OuterJoinStore[Any], times: TimeTracker) -> Callable[[int], None]:
        """Return the function that sends the waiting records whose windows have closed, by a new stream time.

        A waiting record that cannot be read, or for which the joiner raises, is given to the handler and dropped alone.
        """
        left_open, right_open = self.after_ms + self.grace_ms, self.before_ms + self.grace_ms
        combine = joiner_of_side(self.combine, with_key=self.with_key, right=False)
        left_serde, right_serde = waiting.value_serde, waiting.right_serde
        key_of, left_of, right_of = waiting.key_serde.deserialize, left_serde.deserialize, right_serde.deserialize
        task, forward, failed, now_ms = node.task, node.forward, node.failed, node.task.now_ms

        def send_closed(timestamp: int) -> None:
            now = now_ms()
            if times.next_emit_ms - times.emit_interval_ms <= now < times.next_emit_ms:  # earlier: it was set back
                return
            times.next_emit_ms = now + times.emit_interval_ms
            before, task.released = task.released, True
            try:
                send(timestamp)
            finally:
                task.released = before

        def send(timestamp: int) -> None:
            for raw, data in waiting.closed(timestamp - left_open, timestamp - right_open, timestamp):
                of_left, time = data[0], unpack_timestamp(raw)[0]
                serde = waiting.key_serde
                try:
                    its_key = key_of(raw[_KEY_AT:])
                    serde = left_serde if of_left else right_serde
                    its_value = left_of(data[1:]) if of_left else right_of(data[1:])
                except Exception as error:  # noqa: BLE001 - the serdes are the user's
                    failed(row_error(error, waiting, serde=serde, waited="waiting record"), None, None, time)
                    continue
                try:
                    joined = combine(its_key, its_value, None) if of_left else combine(its_key, None, its_value)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    failed(error, its_key, its_value, time)
                    continue
                forward(its_key, joined, time)

        return send_closed
