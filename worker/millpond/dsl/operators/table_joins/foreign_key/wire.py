"""The bytes of joins by a foreign key: what is in their two internal topics, and the keys of the subscription store.

A value of the registration topic, which is also a value of the subscription store::

    version, and 0x80 without a hash | instruction | hash, 16 bytes | left key | partition, 4 bytes, from version 1

A value of the response topic::

    version 0, and 0x80 without a hash | hash, 16 bytes | right value; nothing for None

A key of the subscription store::

    length of the foreign key, 4 bytes | foreign key | left key

The hash is that of the left value, and missing for a deletion. All numbers are big-endian.
"""

from __future__ import annotations

from operator import itemgetter
from struct import Struct
from typing import Any

from mmh3 import mmh3_x64_128_utupledigest

from millpond.serdes import Serde
from millpond.topology import StreamPartitioner

__all__ = (
    "ANSWER_ALWAYS",
    "ANSWER_IF_FOUND",
    "DELETE",
    "DELETE_AND_ANSWER",
    "HASH_LENGTH",
    "NO_HASH",
    "PARTITION_LENGTH",
    "RESPONSES",
    "SUBSCRIPTIONS",
    "KeyBytes",
    "hash128",
    "instruction_heads",
    "left_key_of",
    "partitioner_of_keys",
    "prefix",
    "responses_to",
    "subscriber",
    "written_keys",
)

DELETE, DELETE_AND_ANSWER, ANSWER_ALWAYS, ANSWER_IF_FOUND = range(4)
"""Instructions: delete the subscription; delete it and answer with no value; keep it and always answer; keep it, and
answer if the right table has the row."""

NO_HASH = 0x80
"""The flag in the first byte of a value without a hash."""

_VERSION = 1
HASH_LENGTH = 16
PARTITION_LENGTH = 4
_HASH_SEED = 104729
_pack_length = Struct(">I").pack
_pack_hash = Struct(">QQ").pack
_WITH_HASH = _VERSION
"""The first byte of nearly every subscription: of version 1, with a hash."""


def hash128(left_value: bytes) -> bytes:
    """Return the hash of a serialised left value: Murmur3 with 128 bits, both halves big-endian."""
    return _pack_hash(*mmh3_x64_128_utupledigest(left_value, _HASH_SEED))


def instruction_heads(flag: int = 0) -> tuple[bytes, ...]:
    """Return the first two bytes of a subscription for each instruction, with `NO_HASH` or without a flag."""
    return tuple(bytes((_VERSION | flag, each)) for each in range(4))


def prefix(foreign_key: bytes) -> bytes:
    """Return what the store's keys of all subscriptions to a serialised foreign key begin with."""
    return _pack_length(len(foreign_key)) + foreign_key


def subscriber(subscription: bytes) -> tuple[bytes, bytes, int | None]:
    """Return the head of responses to a subscription, the left key, and the partition to send them to, if known."""
    flags = subscription[0]
    if flags == _WITH_HASH:
        partition = int.from_bytes(subscription[-PARTITION_LENGTH:], "big")
        return b"\x00" + subscription[2:18], subscription[18:-PARTITION_LENGTH], partition
    if flags & NO_HASH:
        head, start = b"\x80", 2
    else:
        head, start = b"\x00" + subscription[2:18], 18
    if flags & ~NO_HASH:
        return head, subscription[start:-PARTITION_LENGTH], int.from_bytes(subscription[-PARTITION_LENGTH:], "big")
    return head, subscription[start:], None


def left_key_of(subscription: bytes) -> bytes:
    """Return the left key of a subscription."""
    flags = subscription[0]
    if flags == _WITH_HASH:
        return subscription[18:-PARTITION_LENGTH]
    start = 2 if flags & NO_HASH else 18
    return subscription[start:-PARTITION_LENGTH] if flags & ~NO_HASH else subscription[start:]


def _same(data: bytes, /) -> bytes:
    return data


def _subscription(data: bytes, /) -> bytes:
    """Return the data, if this version can read it."""
    version = data[0] & ~NO_HASH
    if version > _VERSION:
        raise ValueError(f"it has version {version} of the format, which is from a newer Kafka Streams")
    least = 2 + (0 if data[0] & NO_HASH else HASH_LENGTH) + (PARTITION_LENGTH if version else 0)
    if data[1] > ANSWER_IF_FOUND or len(data) < least:
        raise ValueError("it is not complete, or has an unknown instruction")
    return data


def _response(data: bytes, /) -> bytes:
    """Return the data, if this version can read it."""
    version = data[0] & ~NO_HASH
    if version:
        raise ValueError(f"it has version {version} of the format, which is from a newer Kafka Streams")
    if not data[0] & NO_HASH and len(data) <= HASH_LENGTH:
        raise ValueError("it is not complete")
    return data


SUBSCRIPTIONS: Serde[bytes] = Serde("Subscription", _same, _subscription, immutable=True)
"""Serde of the values of the registration topic and of the subscription store: their bytes, checked."""

RESPONSES: Serde[Any] = Serde("SubscriptionResponse", itemgetter(0), _response, immutable=True)
"""Serde of the values of the response topic. What is written is a pair (bytes, partition), what is read only bytes."""


class KeyBytes(bytes):
    """A serialised key that remembers the key, for a partitioner of the user."""

    key: Any

    @classmethod
    def of(cls, raw: bytes, key: Any) -> KeyBytes:
        """Return the serialised key, with the key."""
        made = cls(raw)
        made.key = key
        return made


def written_keys(serde: Serde[Any] | None) -> Serde[bytes]:
    """Return the serde with which a sink writes keys that are the bytes that `serde` makes."""
    partition_by = None if serde is None else serde.partition_by
    return Serde("Bytes", bytes, _same, immutable=True, partition_by=partition_by)


def partitioner_of_keys(what: str, partitioner: StreamPartitioner) -> StreamPartitioner:
    """Return a user's partitioner as one for `KeyBytes`. It gets no value, and returns one partition or None.

    Args:
        what: the join, for messages.
        partitioner: the user's.

    Raises:
        ValueError: the partitioner returned several partitions, or none, when it is called.
    """

    def chosen(topic: str, key: KeyBytes | None, _value: Any, partitions: int) -> Any:
        found = partitioner(topic, None if key is None else key.key, None, partitions)
        if found is not None and len(found) != 1:
            raise ValueError(
                f"a partitioner of {what} returned {len(found)} partitions; a join by a foreign key needs exactly one "
                "for each record, such as {3}, or None for the default"
            )
        return found

    return chosen


def responses_to(_topic: str, _key: Any, value: tuple[bytes, int | None], _partitions: int) -> Any:
    """Partition responses: to the partition from which the subscription came, if it says so."""
    partition = value[1]
    return None if partition is None else (partition,)
