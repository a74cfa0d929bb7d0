"""The body of a stream's join with itself over one store, which `topology.optimization` makes of an inner self-join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import null_part
from millpond.dsl.operators.guard import FATAL
from millpond.state.unreadable_rows import row_error
from millpond.topology import NodeContext, StreamForward

from .inner import joiner_of_side
from .times import STREAM_TIME

__all__ = ("JoinSelfWindow",)


@dataclass(frozen=True, slots=True)
class JoinSelfWindow:
    """A body that joins each record with the earlier records of its own stream whose time is near, and with itself.

    First it is the left record of each pair, then the right one. Its pair with itself comes before the pairs with
    records of a later time. As in Kafka Streams, a record is joined with itself whatever the windows are, unless it has
    expired.
    """

    store: str
    before_ms: int
    after_ms: int
    retention_ms: int
    combine: Callable[..., Any]
    with_key: bool

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901, PLR0915 - one flat function per record
        """Return the function that one task calls for each record."""
        store = node.store(self.store)
        serialize, matches = store.serialize_key, store.matches
        decode = None if store.value_serde.immutable else store.value_serde.deserialize
        combine = joiner_of_side(self.combine, with_key=self.with_key, right=False)
        before, after, retention = self.before_ms, self.after_ms, self.retention_ms
        forward, failed, dropped = node.forward, node.failed, node.dropped
        stream_time = -1

        def join(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901
            nonlocal stream_time
            if key is None or value is None:
                return dropped(null_part(key))
            last_as_left, last_as_right = timestamp + after, timestamp + before
            try:
                own = combine(key, value, value)
                if timestamp > stream_time:
                    stream_time = timestamp
                raw = serialize(key)
                # As in Kafka Streams: a range that ends before the epoch becomes that of time 0.
                found = matches(raw, timestamp - before, max(0, last_as_left))
                others = matches(raw, timestamp - after, max(0, last_as_right))
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            for time, _, other in found:
                if decode is not None:
                    try:
                        other = decode(other)
                    except Exception as error:  # noqa: BLE001 - the serdes are the user's
                        return failed(row_error(error, store), key, value, timestamp)
                try:
                    joined = combine(key, value, other)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                forward(key, joined, max(timestamp, time))
            alone = timestamp > stream_time - retention + 1
            for time, _, other in others:
                if alone and time > timestamp:
                    alone = False
                    forward(key, own, timestamp)
                if decode is not None:
                    try:
                        other = decode(other)
                    except Exception as error:  # noqa: BLE001 - the serdes are the user's
                        return failed(row_error(error, store), key, value, timestamp)
                try:
                    joined = combine(key, other, value)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                forward(key, joined, max(timestamp, time))
            if alone:
                forward(key, own, timestamp)

        restored = node.remember(STREAM_TIME, lambda: stream_time)
        if restored is not None:
            stream_time = restored
        return join
