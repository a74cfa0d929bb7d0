"""Compact encoding of operators' stream times in offset metadata, which brokers limit to 4 KiB.

An entry is a hash of the operator's name (four bytes) and the difference to the partition time, mostly one to four
bytes. A reader does not get the names back: it keeps the hash as a *short name* until an operator asks for its value.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping

from millpond.errors import TopologyError

__all__ = ("check_names", "pack", "short_name", "unpack", "value_of")

_NAME_BYTES = 4
_MARK = "\0"
_SHORT = re.compile(f"{_MARK}[0-9a-f]{{{2 * _NAME_BYTES}}}")


def short_name(name: str) -> str:
    """Return the short name of an operator; a short name is returned unchanged."""
    if _SHORT.fullmatch(name):
        return name
    return f"{_MARK}{zlib.crc32(name.encode()):0{2 * _NAME_BYTES}x}"


def check_names(names: Iterable[str]) -> None:
    """Check that no two operators have the same short name.

    Raises:
        TopologyError: two operators have the same short name.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(short_name(name), name)
        if other != name:
            raise TopologyError(
                f"the names of the operators '{other}' and '{name}' have the same checksum, under which their stream "
                f"times are committed. Rename one of them."
            )


def value_of(values: Mapping[str, int], name: str) -> int | None:
    """Return the value of an operator, by its name or its short name; None if it has no value."""
    return max((values[each] for each in (name, short_name(name)) if each in values), default=None)


def pack(values: Mapping[str, int], near: int) -> bytes:
    """Return values in a compact form.

    Args:
        values: by name or short name, in epoch milliseconds.
        near: the partition time, to which most values are close.
    """
    packed = bytearray()
    for name, value in values.items():
        packed += bytes.fromhex(short_name(name)[len(_MARK) :])
        difference = value - near
        rest = difference << 1 if difference >= 0 else (-difference << 1) - 1
        while rest > 0x7F:
            packed.append(0x80 | rest & 0x7F)
            rest >>= 7
        packed.append(rest)
    return bytes(packed)


def unpack(packed: bytes, near: int) -> dict[str, int]:
    """Return packed values by short name.

    Raises:
        ValueError: `pack` did not write the bytes.
    """
    values: dict[str, int] = {}
    place = 0
    while place < len(packed):
        name, place = packed[place : place + _NAME_BYTES], place + _NAME_BYTES
        rest = shift = 0
        while True:
            if place >= len(packed):
                raise ValueError("the packed stream times end within a value")
            byte = packed[place]
            place += 1
            rest |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        values[_MARK + name.hex()] = near + (-((rest + 1) >> 1) if rest & 1 else rest >> 1)
    return values
