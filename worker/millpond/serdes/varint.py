"""Kafka's zigzag variable-length integers, for lengths and counts."""

from __future__ import annotations

__all__ = ("read", "write")

_LONGEST = 5


def write(number: int) -> bytes:
    """Return the bytes of a number from 0."""
    rest = number << 1
    if rest < 0x80:
        return rest.to_bytes(1, "big")
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the number at position `at`, and the position after it.

    Raises:
        ValueError: the number does not end before `end`, is longer than 5 bytes, or is negative.
    """
    value = 0
    for index, position in enumerate(range(at, min(end, at + _LONGEST))):
        byte = data[position]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if value & 1:
                break
            return value >> 1, position + 1
    raise ValueError("a length or a count in the data is malformed or cut off")
