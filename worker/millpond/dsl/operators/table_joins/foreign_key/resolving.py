"""The body that joins the left table's rows with the responses to their subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Lookup, as_forwarded, stored_bytes
from millpond.topology import NodeContext, StreamForward

from .resubscribing import Resubscription, resubscriptions
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

    A response to an earlier value of the row is dropped and counted: that of the current value comes later. Only in an
    inner join it comes only if the row has a partner, so there a row whose dropped response had no value asks once
    more. A row that asked with the bytes of an older type is told by the bytes in its store, or asks once more.

    The left table's row is read as forwarded, since that value subscribed.
    """

    wiring: Wiring
    left_table: Lookup
    combine: Callable[[Any, Any], Any]
    left: bool
    remembers: bool = False
    """Whether `Subscribe` remembers the latest subscriptions, since the store's bytes need not be those it hashed."""

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each response."""
        lookup, combine, left = self.left_table.bind(as_forwarded(node)), self.combine, self.left
        serialize = self.wiring.left_value(node).serialize
        serialize_key = self.wiring.left_key(node, self.wiring.left_keys).serialize
        decode = self.wiring.right_value(node).deserialize
        forward, failed, dropped = node.forward, node.failed, node.dropped
        again = resubscriptions(self.wiring, node)
        awaited, leaves_no_row = again.awaited, self._outdated(node, again)
        asked_as_older_type = self._older_type(node, again)

        def resolve(key: Any, response: bytes, timestamp: int) -> None:
            try:
                mine = lookup(key)
                if response[0] & NO_HASH:
                    asked, data = b"", response[1:]
                    current = mine is None
                else:
                    asked, data = response[1:17], response[17:]
                    if mine is None:
                        current = False
                    else:
                        encoded = serialize(mine)
                        current = hash128(encoded) == asked or asked_as_older_type(key, mine, encoded, asked, timestamp)
                if not current:
                    dropped(Drop.OUTDATED)
                    if left or not leaves_no_row(key, mine, asked, data, timestamp):
                        return
                    joined = None
                else:
                    if awaited:
                        awaited.pop(serialize_key(key), None)
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

    def _outdated(self, node: NodeContext, again: Resubscription) -> Callable[[Any, Any, bytes, bytes, int], bool]:
        """Return f(key, row, hash and value of an outdated response, its timestamp) -> whether there is no result.

        A response without a value may be the only one that tells that the partner is gone: the row asks once more, and
        the answer tells what is so now. A row that is gone, or has no foreign key, needs no answer.
        """
        serialize = self.wiring.left_value(node).serialize
        serialize_key = self.wiring.left_key(node, self.wiring.left_keys).serialize
        awaited = again.awaited

        def leaves_no_row(key: Any, mine: Any, asked: bytes, data: bytes, timestamp: int) -> bool:
            if data:
                if awaited and awaited.get(raw_key := serialize_key(key)) == asked:
                    del awaited[raw_key]
                return False
            raw_key = serialize_key(key)
            if mine is not None and (awaited.get(raw_key, asked) != asked or serialize(mine) != serialize(mine)):
                return False  # a later answer is under way, or none would ever have the right hash
            return not again.once_more(raw_key, key, mine, timestamp)

        return leaves_no_row

    def _older_type(self, node: NodeContext, again: Resubscription) -> Callable[[Any, Any, bytes, bytes, int], bool]:
        """Return f(key, row, its bytes, hash of a response, its timestamp) -> whether this row asked as an older type.

        Called only for a hash that is not that of the row's bytes. If the bytes in the store cannot tell, a row that
        was written as another type is subscribed once more; the answer to that has the right hash.
        """
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
            again.once_more(raw_key, key, mine, timestamp)
            return False

        return asked_as_older_type
