"""The integers that operators keep beside a task's offsets, in few bytes: brokers take 4 KiB with an offset, names included.

Each is written as four bytes for the operator's name and the difference to the partition time, mostly one to four bytes. Who
reads that does not learn the names; it keeps the four bytes in their place, as a *short name*, until an operator asks.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Mapping

from millpond.errors import TopologyError

__all__ = ("check_names", "pack", "shortened", "unpack", "value_of")

_NAME_BYTES = 4
_MARK = "\0"
_SHORT = re.compile(f"{_MARK}[0-9a-f]{{{2 * _NAME_BYTES}}}")


def shortened(name: str) -> str:
    """Return the short name of an operator; a short name is its own."""
    if _SHORT.fullmatch(name):
        return name
    return f"{_MARK}{zlib.crc32(name.encode()):0{2 * _NAME_BYTES}x}"


def check_names(names: Iterable[str]) -> None:
    """Check that short names tell operators apart.

    Raises:
        TopologyError: two names have the same one.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(shortened(name), name)
        if other != name:
            raise TopologyError(
                f"the operators '{other}' and '{name}' cannot be told apart beside the committed offsets: the checksums of "
                f"their names are equal. Give one of them another name."
            )


def value_of(values: Mapping[str, int], name: str) -> int | None:
    """Return an operator's value, written under its name or its short name; None when there is neither."""
    return max((values[each] for each in (name, shortened(name)) if each in values), default=None)


def pack(values: Mapping[str, int], near: int) -> str:
    """Return values as base64.

    Args:
        values: by name or short name.
        near: the partition time, which most are close to.
    """
    packed = bytearray()
    for name, value in values.items():
        packed += bytes.fromhex(shortened(name)[len(_MARK) :])
        difference = value - near
        rest = difference << 1 if difference >= 0 else (-difference << 1) - 1
        while rest > 0x7F:
            packed.append(0x80 | rest & 0x7F)
            rest >>= 7
        packed.append(rest)
    return base64.b64encode(packed).decode().rstrip("=")


def unpack(text: str, near: int) -> dict[str, int]:
    """Return values by their short names.

    Raises:
        ValueError: `pack` did not write this.
    """
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    values: dict[str, int] = {}
    place = 0
    while place < len(packed):
        name, place = packed[place : place + _NAME_BYTES], place + _NAME_BYTES
        rest = shift = 0
        while True:
            if place >= len(packed):
                raise ValueError("it ends within a value")
            byte = packed[place]
            place += 1
            rest |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        values[_MARK + name.hex()] = near + (-((rest + 1) >> 1) if rest & 1 else rest >> 1)
    return values
