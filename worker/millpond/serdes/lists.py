"""Lists, with the bytes that Kafka's ListSerializer writes (KIP-466)."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from .checking import check_inner
from .primitives import UUID, Double, Float, Int, Long, Short
from .serde import Serde

__all__ = ("ListSerde",)

T = TypeVar("T")

_int = struct.Struct(">i")
_FIXED_SIZE = b"\x00"
_VARIABLE_SIZE = b"\x01"
_NULL = -1

#: The entries whose size Kafka's ListSerializer leaves out, and that size in bytes.
_SIZES: dict[Serde[Any], int] = {Short: 2, Int: 4, Float: 4, Long: 8, Double: 8, UUID: 36}


def ListSerde(inner: Serde[T]) -> Serde[list[T]]:
    """Return a serde of lists, with the bytes of Kafka's `ListSerde`; None is allowed as an entry.

    Entries of `Short`, `Int`, `Long`, `Float`, `Double` and `UUID` are written without their size, and before them the
    indexes of those that are None. Other entries are written with their size, which is -1 for None.

    Args:
        inner: serde of the entries.

    Raises:
        TopologyError: `inner` is not a serde.
    """
    check_inner("ListSerde", inner)
    encode, decode, size, pack = inner.serialize, inner.deserialize, _SIZES.get(inner), _int.pack

    def serialize_sized(entries: list[T], /) -> bytes:
        _check_list(entries)
        parts = [_VARIABLE_SIZE, pack(len(entries))]
        for entry in entries:
            if entry is None:
                parts.append(pack(_NULL))
            else:
                data = encode(entry)
                parts += (pack(len(data)), data)
        return b"".join(parts)

    def serialize_fixed(entries: list[T], /) -> bytes:
        _check_list(entries)
        missing = [index for index, entry in enumerate(entries) if entry is None]
        parts = [_FIXED_SIZE, *map(pack, (len(missing), *missing, len(entries)))]
        parts += [encode(entry) for entry in entries if entry is not None]
        return b"".join(parts)

    def deserialize(data: bytes, /) -> list[T]:
        return [None if part is None else decode(part) for part in _split(data, size)]  # type: ignore[misc]

    def specialize(topic: str, is_key: bool) -> Serde[list[T]]:  # noqa: FBT001 - see Serde
        return ListSerde(inner.for_topic(topic, is_key))

    serialize = serialize_sized if size is None else serialize_fixed
    special = None if inner.specialize is None else specialize
    return Serde(f"List({inner.name})", serialize, deserialize, specialize=special, entries=inner)


def _check_list(entries: object) -> None:
    if not isinstance(entries, list):
        raise TypeError("expected a list")


def _split(data: bytes, size: int | None) -> list[bytes | None]:
    """Return the encoded entries of a list; None is an entry that is None.

    Raises:
        ValueError: the bytes are not a list.
    """
    flag = data[:1]
    if flag not in (_FIXED_SIZE, _VARIABLE_SIZE):
        raise ValueError("a list begins with a byte that is 0 or 1")
    missing: frozenset[int] = frozenset()
    at = 1
    if flag == _FIXED_SIZE:
        if size is None:
            raise ValueError("its entries have no sizes, and the serde of the entries does not know theirs")
        count, at = _take_count(data, at)
        missing = frozenset(_int.unpack_from(data, at + 4 * index)[0] for index in range(_fitting(data, at, count, 4)))
        at += 4 * count
    count, at = _take_count(data, at)
    found: list[bytes | None] = []
    for index in range(count):
        if flag == _FIXED_SIZE:
            length = _NULL if index in missing else size or 0
        else:
            length, at = _take_count(data, at)
        if length == _NULL:
            found.append(None)
            continue
        _fitting(data, at, 1, length)
        found.append(data[at : at + length])
        at += length
    if at != len(data):
        raise ValueError(f"the list ends after {at} of {len(data)} bytes")
    return found


def _take_count(data: bytes, at: int) -> tuple[int, int]:
    _fitting(data, at, 1, 4)
    (count,) = _int.unpack_from(data, at)
    return count, at + 4


def _fitting(data: bytes, at: int, count: int, size: int) -> int:
    """Return the count if so many parts of a size in bytes follow; raise ValueError if not."""
    if count < 0 or size < 0 or at + count * size > len(data):
        raise ValueError("the list ends too early, or a length in it is negative")
    return count
