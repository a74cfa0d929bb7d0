"""The bodies that keep subscriptions, and answer them with rows of the right table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.drops import Drop
from millpond.dsl.operators.guard import FATAL
from millpond.dsl.operators.lookup import Lookup, as_forwarded
from millpond.dsl.operators.versioned.updates import only_latest
from millpond.serdes import Serde
from millpond.topology import NodeContext, StreamForward, TableForward

from .wire import ANSWER_ALWAYS, ANSWER_IF_FOUND, DELETE, DELETE_AND_ANSWER, KeyBytes, left_key_of, prefix, subscriber
from .wiring import Wiring

__all__ = ("AnswerSubscribers", "AnswerSubscription", "KeepSubscription")


@dataclass(frozen=True, slots=True)
class KeepSubscription:
    """A body that stores each subscription, or deletes it, and passes it on.

    One without a foreign key is not stored, and only passed on if it asks for an answer in any case.
    """

    wiring: Wiring

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each subscription."""
        wiring = self.wiring
        subscribe = node.store(wiring.store).subscribe
        forward, failed, dropped = node.forward, node.failed, node.dropped
        stored = _converter(
            wiring.foreign_key(node, wiring.registrations), wiring.foreign_key(node, wiring.foreign_keys)
        )

        def keep(foreign_key: bytes | None, subscription: bytes, timestamp: int) -> None:
            instruction = subscription[1]
            if foreign_key is None:
                if instruction != ANSWER_ALWAYS:
                    return dropped(Drop.NO_LOOKUP_KEY)
            else:
                try:
                    first = prefix(foreign_key if stored is None else stored(foreign_key))
                    kept = None if instruction <= DELETE_AND_ANSWER else subscription
                    subscribe(first, first + left_key_of(subscription), kept, timestamp)
                except FATAL:
                    raise
                except Exception as error:  # noqa: BLE001 - serdes may be user code
                    return failed(error, foreign_key, subscription, timestamp)
            forward(foreign_key, subscription, timestamp)

        return keep


@dataclass(frozen=True, slots=True)
class AnswerSubscription:
    """A body that answers each subscription with the right table's current row."""

    wiring: Wiring
    right: Lookup

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each subscription."""
        wiring = self.wiring
        lookup = self.right.bind_timed(as_forwarded(node))
        decode = wiring.foreign_key(node, wiring.registrations).deserialize
        encode = wiring.right_value(node).serialize
        left_key = _response_key(wiring, node)
        forward, failed = node.forward, node.failed

        def answer(foreign_key: bytes | None, subscription: bytes, timestamp: int) -> None:
            instruction = subscription[1]
            if instruction == DELETE:
                return
            head, key, partition = subscriber(subscription)
            try:
                if foreign_key is not None:
                    value, latest = lookup(decode(foreign_key))
                    if value is not None:
                        timestamp = max(timestamp, latest)
                        if instruction >= ANSWER_ALWAYS:
                            head += encode(value)
                    elif instruction == ANSWER_IF_FOUND:
                        return
                if left_key is not None:
                    key = left_key(key)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - serdes and the functions of views are user code
                return failed(error, foreign_key, subscription, timestamp)
            forward(key, (head, partition), timestamp)

        return answer


@dataclass(frozen=True, slots=True)
class AnswerSubscribers:
    """A body that sends each change of the right table to all that subscribe to its row."""

    wiring: Wiring
    versioned: bool = False
    """Whether the right table is versioned: then changes that are not their key's latest are dropped (KIP-914)."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change of the right table."""
        wiring = self.wiring
        subscribers = node.store(wiring.store).subscribers
        serialize = wiring.foreign_key(node, wiring.foreign_keys).serialize
        encode = wiring.right_value(node).serialize
        left_key = _response_key(wiring, node)
        forward, failed, dropped = node.forward, node.failed, node.dropped

        def answer(key: Any, new: Any, _old: Any, timestamp: int) -> None:
            if key is None:
                return dropped(Drop.NULL_KEY)
            try:
                answers = []
                found = subscribers(prefix(serialize(key)))
                if found:
                    tail = b"" if new is None else encode(new)
                    for _, subscription in found:
                        head, subscribed, partition = subscriber(subscription)
                        to = subscribed if left_key is None else left_key(subscribed)
                        answers.append((to, (head + tail, partition)))
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - serdes may be user code
                return failed(error, key, new, timestamp)
            for subscribed, response in answers:
                forward(subscribed, response, timestamp)

        return only_latest(node, answer) if self.versioned else answer


def _response_key(wiring: Wiring, node: NodeContext) -> Callable[[bytes], bytes] | None:
    """Return the function from the left key in a subscription to the key of a response; None if they are the same."""
    read, write = wiring.left_key(node, wiring.left_keys), wiring.left_key(node, wiring.responses)
    if wiring.partitioner is None:
        return _converter(read, write)
    decode, encode = read.deserialize, write.serialize

    def with_object(data: bytes) -> bytes:
        key = decode(data)
        return KeyBytes.of(encode(key), key)

    return with_object


def _converter(read: Serde[Any], write: Serde[Any]) -> Callable[[bytes], bytes] | None:
    """Return the function from the bytes of one topic to those of another; None if serdes make the same for both."""
    if read is write:
        return None
    decode, encode = read.deserialize, write.serialize
    return lambda data: encode(decode(data))
