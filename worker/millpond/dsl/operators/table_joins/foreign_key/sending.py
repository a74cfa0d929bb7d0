"""The body that subscribes the left table's rows to the right table's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.versioned.updates import only_latest
from millpond.topology import NodeContext, TableForward

from .resubscribing import Resubscription, resubscriptions
from .wire import (
    ANSWER_ALWAYS,
    ANSWER_IF_FOUND,
    DELETE,
    DELETE_AND_ANSWER,
    HASH_LENGTH,
    NO_HASH,
    PARTITION_LENGTH,
    KeyBytes,
    hash128,
    instruction_heads,
)
from .wiring import Wiring

__all__ = ("Subscribe",)

Ask: TypeAlias = Callable[[Any, Any], tuple[tuple[bytes, ...], bytes]]
"""f(key, new value) -> how a subscription of the row begins, for each instruction, and how it goes on."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A body that tells the right table's tasks which of its rows each row of the left table needs.

    An inner join drops and counts rows without a foreign key; a left join asks for an answer without a value.
    """

    wiring: Wiring
    extract: Callable[[Any, Any], Any]
    left: bool
    versioned: bool = False
    """Whether the left table is versioned: then changes that are not their key's latest are dropped (KIP-914)."""
    remembers: bool = False
    """Whether it has to remember the latest subscriptions, since no store has the bytes that they were hashed from."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change of the left table."""
        again = resubscriptions(self.wiring, node)
        ask = self._ask(node, again if self.remembers else None)
        foreign = self._foreign_key(node)
        again.subscribe = _again(node, foreign, ask, left=self.left)
        subscribe = _left(node, foreign, ask) if self.left else _inner(node, foreign, ask, again)
        return only_latest(node, subscribe) if self.versioned else subscribe

    def _foreign_key(self, node: NodeContext) -> Callable[[Any, Any], bytes | None]:
        """Return f(key, value) -> the serialised foreign key; None for none."""
        wiring, extract = self.wiring, self.extract
        serde = wiring.foreign_key(node, wiring.registrations)
        serialize = serde.serialize
        keep = wiring.other_partitioner is not None

        def foreign(key: Any, value: Any) -> bytes | None:
            found = extract(key, value)
            if found is None:
                return None
            try:
                raw = serialize(found)
            except FATAL:
                raise
            except Exception as error:
                raise TypeError(wiring.wrong_key(found, serde, error)) from error
            return KeyBytes.of(raw, found) if keep else raw

        return foreign

    def _ask(self, node: NodeContext, again: Resubscription | None) -> Ask:
        """Return the function that writes subscriptions, and remembers them where that is needed."""
        wiring = self.wiring
        serialize_key = wiring.left_key(node, wiring.left_keys).serialize
        serialize_value = wiring.left_value(node).serialize
        partition = node.task.task_id.partition.to_bytes(4, "big")
        heads, without_hash = instruction_heads(), instruction_heads(NO_HASH)

        def ask(key: Any, new: Any) -> tuple[tuple[bytes, ...], bytes]:
            tail = serialize_key(key) + partition
            if new is None:
                return without_hash, tail
            return heads, hash128(serialize_value(new)) + tail

        if again is None:
            return ask
        remember = again.remember

        def ask_and_remember(key: Any, new: Any) -> tuple[tuple[bytes, ...], bytes]:
            asked = ask(key, new)
            remember(serialize_key(key))
            return asked

        return ask_and_remember


def _inner(
    node: NodeContext, foreign: Callable[[Any, Any], bytes | None], ask: Ask, again: Resubscription
) -> TableForward:
    forward, failed, dropped = node.forward, node.failed, node.dropped
    expect = again.expect

    def subscribe(key: Any, new: Any, old: Any, timestamp: int) -> None:
        try:
            before = None if old is None else foreign(key, old)
            after = None if new is None else foreign(key, new)
            if before is None and after is None:
                return None if new is None and old is None else dropped(Drop.NO_LOOKUP_KEY)
            heads, tail = ask(key, new)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, new, timestamp)
        if before is not None and after is not None and before != after:
            expect(tail[HASH_LENGTH:-PARTITION_LENGTH], tail[:HASH_LENGTH])
            forward(before, heads[DELETE] + tail, timestamp)
            return forward(after, heads[ANSWER_ALWAYS] + tail, timestamp)
        if after is None:
            forward(before, heads[DELETE_AND_ANSWER] + tail, timestamp)
        else:
            forward(after, heads[ANSWER_IF_FOUND] + tail, timestamp)

    return subscribe


def _left(node: NodeContext, foreign: Callable[[Any, Any], bytes | None], ask: Ask) -> TableForward:
    forward, failed = node.forward, node.failed

    def subscribe(key: Any, new: Any, old: Any, timestamp: int) -> None:
        if new is None and old is None:
            return
        try:
            before = None if old is None else foreign(key, old)
            after = None if new is None else foreign(key, new)
            heads, tail = ask(key, new)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - user code raises anything
            return failed(error, key, new, timestamp)
        if before is not None and before != after:
            forward(before, heads[DELETE] + tail, timestamp)
        forward(after, heads[ANSWER_ALWAYS] + tail, timestamp)

    return subscribe


def _again(
    node: NodeContext, foreign: Callable[[Any, Any], bytes | None], ask: Ask, *, left: bool
) -> Callable[[Any, Any, int], bytes | None]:
    """Return f(key, value, timestamp in ms) -> hash, which subscribes an unchanged row once more."""
    forward = node.forward

    def subscribe(key: Any, value: Any, timestamp: int) -> bytes | None:
        foreign_key = foreign(key, value)
        if foreign_key is None and not left:
            return None
        heads, tail = ask(key, value)
        forward(foreign_key, heads[ANSWER_ALWAYS] + tail, timestamp)
        return tail[:HASH_LENGTH]

    return subscribe
