"""The serde of a table's changes in a repartition topic: the new and the old value in one record (KIP-904).

The last byte is a flag; the bytes before it are::

    0  old
    1  new
    2  zigzag varint length of new, new, old
    3  old, latest
    4  new, latest
    5  zigzag varint length of new, new, old, latest

`latest` is one byte, 0 or 1. Kafka Streams writes the flags 0 to 2 and reads all six; so does this serde.
"""

from __future__ import annotations

from typing import TypeVar

from . import varint
from .serde import Serde

__all__ = ("ChangeSerde",)

V = TypeVar("V")

_OLD, _NEW, _BOTH, _OLD_LATEST, _NEW_LATEST, _BOTH_LATEST = range(6)


def ChangeSerde(inner: Serde[V]) -> Serde[tuple[V | None, V | None]]:  # noqa: C901 - the functions of one serde
    """Return the serde of `(new, old)` tuples. At least one of the two is not None."""
    encode, decode = inner.serialize, inner.deserialize

    def serialize(change: tuple[V | None, V | None], /) -> bytes:
        new, old = change
        if new is None:
            if old is None:
                raise ValueError("a change needs a new value, an old value, or both")
            return encode(old) + b"\x00"
        if old is None:
            return encode(new) + b"\x01"
        new_bytes = encode(new)
        return b"".join((varint.write(len(new_bytes)), new_bytes, encode(old), b"\x02"))

    def deserialize(data: bytes, /) -> tuple[V | None, V | None]:
        if not data:
            raise ValueError("a change has at least one byte")
        flag = data[-1]
        end = len(data) - 1
        if flag >= _OLD_LATEST:
            if flag > _BOTH_LATEST:
                raise ValueError(f"a change cannot end in byte {flag}")
            end -= 1
            if end < 0 or data[end] > 1:
                raise ValueError("the byte before the flag is neither 0 nor 1")
            flag -= _OLD_LATEST
        if flag == _OLD:
            return None, decode(data[:end])
        if flag == _NEW:
            return decode(data[:end]), None
        length, at = varint.read(data, 0, end)
        if at + length > end:
            raise ValueError(f"a change announces {length} bytes of new value but has only {end - at}")
        return decode(data[at : at + length]), decode(data[at + length : end])

    def specialize(topic: str, is_key: bool) -> Serde[tuple[V | None, V | None]]:  # noqa: FBT001 - see Serde
        return ChangeSerde(inner.for_topic(topic, is_key))

    name = f"Change({inner.name})"
    return Serde(name, serialize, deserialize, inner.immutable, None if inner.specialize is None else specialize)
