"""The body of one side of an inner stream-stream join."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import null_part
from millpond.dsl.operators.guard import FATAL
from millpond.state.unreadable_rows import row_error
from millpond.topology import NodeContext, StreamForward

__all__ = ("JoinWindow", "joiner_of_side")

Joiner = Callable[[Any, Any, Any], Any]
"""f(key, value of this side, value of the other side) -> value of the result."""


@dataclass(frozen=True, slots=True)
class JoinWindow:
    """A body that joins each record with the records of the other side whose time is near, in the order of their times.

    A result has the larger of the two timestamps. Records without a key or a value are dropped, and counted.
    """

    join: str
    """The name of the join."""
    other_store: str
    before_ms: int
    after_ms: int
    combine: Callable[..., Any]
    with_key: bool
    right: bool
    """Whether this is the right side, whose value the joiner takes last."""

    def bind(self, node: NodeContext) -> StreamForward:  # noqa: C901 - one flat function per record
        """Return the function that one task calls for each record."""
        store = node.store(self.other_store)
        serialize, matches = store.serialize_key, store.matches
        decode = None if store.value_serde.immutable else store.value_serde.deserialize
        combine, with_key, right = self.combine, self.with_key, self.right
        before, after = self.before_ms, self.after_ms
        forward, failed, dropped, unjoined, name = node.forward, node.failed, node.dropped, node.unjoined, self.join

        def join(key: Any, value: Any, timestamp: int) -> None:  # noqa: C901
            if key is None or value is None:
                return dropped(null_part(key))
            last = timestamp + after
            if last < 0:
                # As in Kafka Streams: a range that ends before the epoch becomes that of time 0.
                last = 0
            try:
                found = matches(serialize(key), timestamp - before, last)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - the serdes are the user's
                return failed(error, key, value, timestamp)
            if not found and timestamp - before <= store.floor:
                return unjoined(name, store.floor - timestamp + before)
            for time, _, other in found:
                if decode is not None:
                    try:
                        other = decode(other)
                    except Exception as error:  # noqa: BLE001 - the serdes are the user's
                        return failed(row_error(error, store), key, value, timestamp)
                try:
                    if with_key:
                        joined = combine(key, other, value) if right else combine(key, value, other)
                    else:
                        joined = combine(other, value) if right else combine(value, other)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - user code raises anything
                    return failed(error, key, value, timestamp)
                if time < timestamp:
                    time = timestamp
                forward(key, joined, time)

        return join


def joiner_of_side(combine: Callable[..., Any], *, with_key: bool, right: bool) -> Joiner:
    """Return the user's joiner as a function of key, this side's value and the other side's."""
    if not with_key:
        return (lambda _, one, other: combine(other, one)) if right else (lambda _, one, other: combine(one, other))
    return (lambda key, one, other: combine(key, other, one)) if right else combine
