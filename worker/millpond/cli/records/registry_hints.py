"""Recognizes values of a schema registry by their bytes, to name the options that show them. Pure."""

from __future__ import annotations

from millpond.topology import is_repartition_topic

__all__ = ("looks_like_registry",)

_PREFIX_LENGTH = 5
_LONG_LENGTH = 8


def looks_like_registry(data: bytes, topic: str) -> bool:
    """Return whether bytes that are no text begin like those of a schema registry: a zero byte, and a schema id.

    Long numbers begin with a zero byte, too, and so do some values of changelogs and repartition topics, which are in
    formats of their own: neither is taken for a value of a registry.

    Args:
        data: the bytes of a key or a value.
        topic: its topic.
    """
    if len(data) <= _PREFIX_LENGTH or len(data) == _LONG_LENGTH or data[0]:
        return False
    return any(data[1:_PREFIX_LENGTH]) and not topic.endswith("-changelog") and not is_repartition_topic(topic)
