"""Serde: a pair of functions that turn values into bytes and back.

Serdes are resolved once, when a topology is compiled, and called per record. So the two functions are plain attributes
that hold the fastest available callable, often a C method, without a wrapper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from millpond.checks import check_function
from millpond.errors import SerializationError
from millpond.texts import said

__all__ = ("Serde", "framed")

T = TypeVar("T")

_REGISTRY_PREFIX = 5
_LONGEST_CAUSE = 200
_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True, eq=False)
class Serde(Generic[T]):
    """Two functions that turn values of one type into bytes and back.

    A serde of your own needs a name and two functions::

        Celsius = Serde("Celsius", lambda degrees: b"%.1f" % degrees, float, immutable=True)

    A serde never gets None: a null key or value is null in the topic.

    Raises:
        TopologyError: one of the functions cannot be called with one argument.
    """

    name: str
    """The name in error messages, such as ``String`` or ``Json(Flight)``."""

    serialize: Callable[[T], bytes]
    """f(value) -> bytes; raises any exception for a value that it cannot encode. Never called with None."""

    deserialize: Callable[[bytes], T]
    """f(bytes) -> value; raises any exception for bytes that it cannot decode. Never called with None."""

    immutable: bool = False
    """Whether no value of it can be changed in place: then state stores keep the object itself."""

    specialize: Callable[[str, bool], Serde[T]] | None = None
    """f(topic, is key) -> the serde for that topic, if bytes depend on it (Schema Registry subjects); else None."""

    partition_by: Callable[[bytes], bytes] | None = None
    """f(serialised key) -> the part of it that determines the partition (windowed keys); None: all of it."""

    inner: Serde[Any] | None = None
    """For keys in time windows: the serde of the key itself; its bytes come first, then the window's start."""

    entries: Serde[Any] | None = None
    """For lists: the serde of the entries."""

    from_json: Callable[[Any], Any] | None = None
    """f(JSON value, as `millpond consume` shows it) -> value for `serialize`, or ValueError; None: the same."""

    header: str | None = None
    """The record header with the schema's id, for serdes with a schema registry. See `framed`."""

    type: Any = None
    """The type of the values, as msgspec has types; None if it is not known. Tables of batches need it."""

    def __post_init__(self) -> None:
        check_function(f"Serde {self.name}", self.serialize, "value")
        check_function(f"Serde {self.name}", self.deserialize, "data")

    def for_topic(self, topic: str, is_key: bool = False) -> Serde[T]:  # noqa: FBT001, FBT002 - as in Kafka's serializers
        """Return the serde for the keys (or values) of one topic. Called once per topic, never per record.

        Args:
            topic: the topic's real name, with the application's prefix for internal topics.
            is_key: True for its keys; by default it is for its values.
        """
        return self if self.specialize is None else self.specialize(topic, is_key)

    def framed(self, data: bytes, headers: Iterable[tuple[str, bytes | None]] | None) -> bytes:
        """Return the bytes for `deserialize` of a record: with the schema's id before them, if a header has it."""
        return framed(self.header, data, headers)

    def decoding_failed(self, data: bytes, error: Exception) -> SerializationError:
        """Return the error for bytes that this serde could not decode. It never shows them, as they may be secret."""
        # Values of a schema registry begin with a zero byte and a schema id, and no text does.
        registry = len(data) > _REGISTRY_PREFIX and not data[0] and self.specialize is None and "Json" in self.name
        hint = "; they begin like those of a schema registry, which the serde Avro, Protobuf or JsonSchema reads"
        return SerializationError(
            f"{self.name} cannot decode {_count(data)}: {_cause(error, data)}{hint if registry else ''}"
        )

    def encoding_failed(self, value: object, error: Exception) -> SerializationError:
        """Return the error for a value that this serde could not encode. It shows the type, and never the value."""
        return SerializationError(f"{self.name} cannot encode a value of type {_type_name(value)}: {_cause(error)}")

    def __repr__(self) -> str:
        return self.name


def framed(name: str | None, data: bytes, headers: Iterable[tuple[str, bytes | None]] | None) -> bytes:
    """Return the value of the last header with a name, and the data after it; only the data without such a header."""
    found = b""
    for header, value in headers or ():
        if header == name and value is not None:
            found = value
    return found + data


def _count(data: bytes) -> str:
    return "1 byte" if len(data) == 1 else f"{len(data)} bytes"


def _type_name(value: object) -> str:
    return type(value).__qualname__


def _cause(error: Exception, data: bytes = b"") -> str:
    """Return one line about an error, without the payload that some libraries quote in their errors.

    A name in the payload may be quoted, so characters that control a terminal are replaced.
    """
    text = "".join(each if each.isprintable() else "\ufffd" for each in " ".join(said(error).split()))
    text = text or type(error).__name__
    payload = data.decode("utf-8", "replace")
    if len(payload) >= _SHORTEST_SECRET:
        for quoted in (payload, payload.strip(' "\r\n\t'), repr(data), repr(payload)[1:-1]):
            if len(quoted) >= _SHORTEST_SECRET:
                text = text.replace(quoted, "…")
    return text if len(text) <= _LONGEST_CAUSE else text[: _LONGEST_CAUSE - 1] + "…"
