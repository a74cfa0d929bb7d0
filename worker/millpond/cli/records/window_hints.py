"""Recognizes keys in windows by their bytes, to name the options that show them. Pure."""

from __future__ import annotations

import struct
from typing import Any

from .coders import Coder

__all__ = ("SESSION", "TIME", "checked", "kind_of_windows")

SESSION, TIME = "session", "SIZE"
"""The values of `--window` that a key needs."""

_long = struct.Struct(">q")
_SEQUENCE_LENGTH = 4
#: Times of event time that are likely: 1973 to 2286, in epoch ms. Their first two bytes are zero, as in no text.
_LIKELY = range(10**11, 10**13)


def kind_of_windows(key: bytes, topic: str) -> str:
    """Return the value of `--window` that a key in a format of its own needs, `session` or `SIZE`; empty if none.

    Args:
        key: the bytes of a key that are no text.
        topic: its topic. In the changelogs of window stores, keys end with a sequence number.
    """
    last, before = _time(key, 8), _time(key, 16)
    if last is not None and before is not None and before >= last:
        return SESSION
    if last is not None:
        return TIME
    if topic.endswith("-changelog") and _time(key, 8 + _SEQUENCE_LENGTH) is not None:
        return TIME
    return ""


def checked(coder: Coder, window: str, topic: str) -> Coder:
    """Return a coder of text keys in windows that rejects keys in windows of another kind.

    Args:
        coder: the coder, for `--window` with a size or with `session`.
        window: the value of `--window`.
        topic: the topic that is read.
    """
    wanted = SESSION if window == SESSION else TIME

    def decode(data: bytes) -> Any:
        found = kind_of_windows(data, topic)
        if found and found != wanted:
            what = "a session" if found == SESSION else "a window of a fixed size"
            raise ValueError(f"the key looks like one in {what}: give --window {found} instead of --window {window}")
        return coder.decode(data)

    return coder._replace(decode=decode)


def _time(key: bytes, from_end: int) -> int | None:
    """Return a likely time at so many bytes before the end of a key; None if there is none."""
    if len(key) < from_end:
        return None
    (found,) = _long.unpack_from(key, len(key) - from_end)
    return found if found in _LIKELY else None
