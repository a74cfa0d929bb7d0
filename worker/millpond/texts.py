"""Text of users, records and brokers, in a form that every encoder accepts.

A `str` may contain a lone surrogate: half of a character, which has no UTF-8. Some JSON has such text, and
`bytes.decode(errors="surrogateescape")` makes it. Here it is written as Python's escape of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

__all__ = ("encoded", "said", "utf8", "well_formed")


class _Encoder(Protocol):
    def encode(self, obj: Any, /) -> bytes: ...


def utf8(text: str) -> bytes:
    """Return any text as UTF-8."""
    return text.encode(errors="backslashreplace")


def well_formed(text: str) -> str:
    """Return any text in a form that can be encoded."""
    return text if text.isascii() else utf8(text).decode()


def said(error: BaseException) -> str:
    """Return the text of an exception of any class, also if its `str()` fails; it can be encoded."""
    try:
        return well_formed(str(error))
    except Exception as failed:  # noqa: BLE001 - user code
        return f"{type(error).__name__}, whose str() raised {type(failed).__name__}"


def encoded(content: Any, encoder: _Encoder) -> bytes:
    """Return a message as JSON or MessagePack, whatever text is in it.

    Args:
        content: the message.
        encoder: the encoder of msgspec.
    """
    try:
        return encoder.encode(content)
    except UnicodeEncodeError:
        return encoder.encode(_all_well_formed(msgspec.to_builtins(content, builtin_types=(bytes,))))


def _all_well_formed(content: Any) -> Any:
    if isinstance(content, str):
        return well_formed(content)
    if isinstance(content, dict):
        return {_all_well_formed(key): _all_well_formed(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_all_well_formed(each) for each in content]
    return content
