"""The pair of functions that turns values into bytes and back.

A serde is resolved once, when a topology is built, and then called once per record: so its two halves are plain
attributes that hold the fastest callable there is (often a C method), and nothing else happens on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from millpond.checks import check_function
from millpond.errors import SerializationError

__all__ = ("Serde",)

T = TypeVar("T")

_LONGEST_CAUSE = 200
_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True, eq=False)
class Serde(Generic[T]):
    """How values of one type become bytes and bytes become values.

    Two halves are enough for a serde of one's own::

        Celsius = Serde("Celsius", lambda degrees: b"%.1f" % degrees, float, immutable=True)

    Null never reaches a serde: a null key or value is null on the wire.
    """

    name: str
    """What error messages call it, such as ``String`` or ``Json(Flight)``."""

    serialize: Callable[[T], bytes]
    """Value to bytes; raises any exception for a value it cannot encode. Never called with None."""

    deserialize: Callable[[bytes], T]
    """Bytes to value; raises any exception for bytes it cannot decode. Never called with None."""

    immutable: bool = False
    """True when no value of this serde can be changed in place: state stores then keep the object itself."""

    specialize: Callable[[str, bool], Serde[T]] | None = None
    """For serdes whose bytes depend on the topic (Schema Registry subjects); None when they do not."""

    partition_by: Callable[[bytes], bytes] | None = None
    """The part of a serialised key that decides its partition, where that is not all of it (windowed keys)."""

    def __post_init__(self) -> None:
        check_function(f"Serde {self.name}", self.serialize, "value")
        check_function(f"Serde {self.name}", self.deserialize, "data")

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """The serde to use for the keys (or values) of one topic. Called once per topic, never per record.

        Args:
            topic: the topic's real name, with the application's prefix for internal topics.
            is_key: True for the keys of the topic, False for its values.
        """
        return self if self.specialize is None else self.specialize(topic, is_key)

    def decoding_failed(self, data: bytes, error: Exception) -> SerializationError:
        """The error to raise for bytes that this serde refused; it never shows them, since they may be secret."""
        return SerializationError(f"{self.name} cannot decode {_count(data)}: {_cause(error, data)}")

    def encoding_failed(self, value: object, error: Exception) -> SerializationError:
        """The error to raise for a value that this serde refused; it tells its type and not the value."""
        return SerializationError(f"{self.name} cannot encode a value of type {_type_name(value)}: {_cause(error)}")

    def __repr__(self) -> str:
        return self.name


def _count(data: bytes) -> str:
    return "1 byte" if len(data) == 1 else f"{len(data)} bytes"


def _type_name(value: object) -> str:
    return type(value).__qualname__


def _cause(error: Exception, data: bytes = b"") -> str:
    """One line about `error`, without the payload when the library that raised it quotes it."""
    text = " ".join(str(error).split()) or type(error).__name__
    payload = data.decode("utf-8", "replace")
    if len(payload) >= _SHORTEST_SECRET:
        for quoted in (payload, payload.strip(' "\r\n\t'), repr(data), repr(payload)[1:-1]):
            if len(quoted) >= _SHORTEST_SECRET:
                text = text.replace(quoted, "…")
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"
