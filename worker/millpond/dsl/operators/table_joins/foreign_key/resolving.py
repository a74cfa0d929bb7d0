"""The body that joins the left table's rows with the responses to their subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Lookup
from millpond.topology import NodeContext, StreamForward

from .wire import NO_HASH, hash128
from .wiring import Wiring

__all__ = ("ResolveResponse",)


@dataclass(frozen=True, slots=True)
class ResolveResponse:
    """A body that joins each response with the left table's row, if the row is still the one that asked.

    A response to an earlier value of the row is dropped and counted: that of the current value comes later.
    """

    wiring: Wiring
    left_table: Lookup
    combine: Callable[[Any, Any], Any]
    left: bool

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each response."""
        lookup, combine, left = self.left_table.bind(node), self.combine, self.left
        serialize = self.wiring.left_value(node).serialize
        decode = self.wiring.right_value(node).deserialize
        forward, failed, dropped = node.forward, node.failed, node.dropped

        def resolve(key: Any, response: bytes, timestamp: int) -> None:
            try:
                mine = lookup(key)
                if response[0] & NO_HASH:
                    current, data = mine is None, response[1:]
                else:
                    current = mine is not None and hash128(serialize(mine)) == response[1:17]
                    data = response[17:]
                if not current:
                    return dropped(Drop.OUTDATED)
                if data:
                    joined = combine(mine, decode(data))
                else:
                    joined = combine(mine, None) if left and mine is not None else None
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, response, timestamp)
            forward(key, joined, timestamp)

        return resolve
