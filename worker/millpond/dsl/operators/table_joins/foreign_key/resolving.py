"""The body that joins the left table's rows with the responses to their subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Lookup, stored_bytes
from millpond.topology import NodeContext, StreamForward

from .resubscribing import resubscriptions
from .wire import NO_HASH, hash128
from .wiring import Wiring

__all__ = ("ResolveResponse",)

log: logging.Logger = logging.getLogger(__name__)

_NO_STABLE_BYTES = (
    "%s: the serde of the left table's values encodes one value as other bytes each time, so no answer can be matched "
    "with its row, and results are missing. Use a serde whose bytes depend on the value only."
)
_SUBSCRIBED_AGAIN = (
    "%s: rows of the left table are encoded as other bytes than when they subscribed, as after a change of their type. "
    "Each is subscribed once more when an answer to it comes."
)


@dataclass(frozen=True, slots=True)
class ResolveResponse:
    """A body that joins each response with the left table's row, if the row is still the one that asked.

    A response to an earlier value of the row is dropped and counted: that of the current value comes later. A row that
    asked with the bytes of an older type is told by the bytes in its store, or asks once more.
    """

    wiring: Wiring
    left_table: Lookup
    combine: Callable[[Any, Any], Any]
    left: bool
    remembers: bool = False
    """Whether `Subscribe` remembers the latest subscriptions, since the store's bytes need not be those it hashed."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each response."""
        lookup, combine, left = self.left_table.bind(node), self.combine, self.left
        serialize = self.wiring.left_value(node).serialize
        decode = self.wiring.right_value(node).deserialize
        forward, failed, dropped = node.forward, node.failed, node.dropped
        asked_as_older_type = self._older_type(node)

        def resolve(key: Any, response: bytes, timestamp: int) -> None:
            try:
                mine = lookup(key)
                if response[0] & NO_HASH:
                    current, data = mine is None, response[1:]
                elif mine is None:
                    return dropped(Drop.OUTDATED)
                else:
                    encoded = serialize(mine)
                    current = hash128(encoded) == response[1:17] or asked_as_older_type(
                        key, mine, encoded, response[1:17], timestamp
                    )
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

    def _older_type(self, node: NodeContext) -> Callable[[Any, Any, bytes, bytes, int], bool]:
        """Return f(key, row, its bytes, hash of a response, its timestamp) -> whether this row asked as an older type.

        Called only for a hash that is not that of the row's bytes. If the bytes in the store cannot tell, a row that
        was written as another type is subscribed once more; the answer to that has the right hash.
        """
        again = resubscriptions(self.wiring, node)
        serialize = self.wiring.left_value(node).serialize
        serialize_key = self.wiring.left_key(node, self.wiring.left_keys).serialize
        stored, reused = stored_bytes(self.left_table, node), self.remembers
        shown, told = self.wiring.shown, False

        def asked_as_older_type(key: Any, mine: Any, encoded: bytes, asked: bytes, timestamp: int) -> bool:
            nonlocal told
            if serialize(mine) != encoded:
                if not told:
                    log.error(_NO_STABLE_BYTES, shown)
                told = True
                return False
            if stored is not None:
                written = stored.read(key)
                held = None if written is None else stored.decode(written)
                if written is None or serialize(held) != encoded:
                    return False  # put since the last commit, so as this type: the answer is to an earlier value
                if hash128(written) == asked:
                    return True
                if stored.encode(held) == written and not reused:
                    return False  # put as this type
            raw_key = serialize_key(key)
            if again.remembers(raw_key):
                return False
            if not told:
                log.info(_SUBSCRIBED_AGAIN, shown)
            told = True
            again.remember(raw_key)
            again.subscribe(key, mine, timestamp)
            return False

        return asked_as_older_type
