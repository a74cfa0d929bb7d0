"""Text of a cluster that is safe to print: whoever may write a status or an event may otherwise control a terminal."""

from __future__ import annotations

import re
from typing import Any

__all__ = ("printable", "printable_line")

# Control characters but tab and line feed, and those that change the direction of text.
_UNSAFE = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")

_COLOUR = re.compile("(\\x1b\\[[0-9;]{0,30}m)")
_PLAIN = "\x1b[0m"


def printable(content: Any) -> Any:
    """Return JSON content with U+FFFD in place of each character that controls a terminal or the direction of text."""
    if isinstance(content, str):
        return _UNSAFE.sub("\ufffd", content)
    if isinstance(content, list):
        return [printable(each) for each in content]
    if isinstance(content, dict):
        return {key: printable(value) for key, value in content.items()}
    return content


def printable_line(line: str) -> str:
    """Return a line of a log with its colours, which end with it, and with U+FFFD for other such characters.

    A carriage return at its end is left out.
    """
    parts = _COLOUR.split(line.removesuffix("\r"))
    # Every second part is a sequence for colours.
    shown = "".join(part if at % 2 else printable(part) for at, part in enumerate(parts))
    return f"{shown}{_PLAIN}" if len(parts) > 1 else shown
