"""Confluent's framing: a zero byte, the schema's id, and for Protobuf the path to the message.

Since Confluent Platform 8 a record may have the same in a header, where a one and the schema's GUID replace both. Its
data are the value alone then. `Serde.framed` puts them together.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn
from uuid import UUID

from millpond.errors import SerializationError
from millpond.serdes import varint
from millpond.serdes.serde import Serde

from .client import RegisteredSchema, SubjectName

__all__ = (
    "PREFIX_LENGTH",
    "SchemaId",
    "after_schema_id",
    "frame",
    "message_path",
    "prefix",
    "schema_id",
    "skip_message_path",
)

PREFIX_LENGTH = 5
_GUID_LENGTH = 17
_HEADERS = {True: "__key_schema_id", False: "__value_schema_id"}
"""Confluent's names of the headers, by whether they are for keys."""

SchemaId = int | UUID
"""The id of a schema in its registry, or its GUID."""

_prefix = struct.Struct(">BI")

Encode = Callable[[Any], bytes]


def prefix(schema_id: int) -> bytes:
    """Return the prefix of every value of a schema."""
    return _prefix.pack(0, schema_id)


def schema_id(data: bytes) -> SchemaId:
    """Return the id of the schema that `data` was written with.

    Raises:
        ValueError: the data was not written with a schema registry.
    """
    if data[:1] == b"\x01" and len(data) >= _GUID_LENGTH:
        return UUID(bytes=data[1:_GUID_LENGTH])
    if len(data) < PREFIX_LENGTH or data[0]:
        raise ValueError(
            "the data do not start with a zero byte and a schema id; no serde with a schema registry wrote them"
        )
    return int.from_bytes(data[1:PREFIX_LENGTH], "big")


def after_schema_id(data: bytes) -> int:
    """Return the position after the id of the schema, in data of `schema_id`."""
    return _GUID_LENGTH if data[0] else PREFIX_LENGTH


def message_path(indexes: Sequence[int]) -> bytes:
    """Return the encoded path to a Protobuf message: a count and zigzag varints; a single 0 for the first message."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(varint.write(number) for number in (len(indexes), *indexes))


def skip_message_path(data: bytes) -> int:
    """Return the position of the message, after the path that follows the schema's id.

    Raises:
        ValueError: the data end before that position.
    """
    count, at = varint.read(data, after_schema_id(data), len(data))
    for _ in range(count):
        _, at = varint.read(data, at, len(data))
    return at


def frame(  # noqa: PLR0913 - the parts of a serde
    name: str,
    subject_name: SubjectName,
    register: Callable[[str], RegisteredSchema],
    encoder: Callable[[RegisteredSchema], Encode],
    record: Callable[[], str | None],
    deserialize: Callable[[bytes], Any],
    *,
    immutable: bool,
    type: Any = None,
    converter: Callable[[RegisteredSchema], Callable[[Any], Any]] | None = None,
) -> Serde[Any]:
    """Return a serde whose schema is registered with the first value that is written to a topic.

    So reading a topic needs no permission to register schemas, and a topology can be built without a registry.

    Args:
        name: the serde's name.
        subject_name: how subjects are named.
        register: f(subject) -> the registered schema.
        encoder: f(registered schema) -> the function that encodes values, prefix included.
        record: f() -> the record's name, or None.
        deserialize: f(bytes of any topic) -> value; the bytes have the schema's id.
        immutable: see `Serde`.
        type: see `Serde`.
        converter: f(registered schema) -> the function from JSON values to values; None: see `Serde.from_json`.
    """
    cached: dict[tuple[str, bool], Serde[Any]] = {}

    def no_topic(value: Any, /) -> NoReturn:
        raise SerializationError(
            f"{name} needs a topic, which names the subject: call for_topic('orders') on it first, or "
            "for_topic('orders', is_key=True) for keys"
        )

    def for_topic(topic: str, is_key: bool = False) -> Serde[Any]:  # noqa: FBT001, FBT002 - see Serde
        known = cached.get((topic, is_key))
        if known is None:
            known = cached[topic, is_key] = _of_topic(topic, is_key)
        return known

    def _of_topic(topic: str, is_key: bool) -> Serde[Any]:  # noqa: FBT001 - see Serde
        encode: Encode | None = None
        convert: Callable[[Any], Any] | None = None

        def registered() -> RegisteredSchema:
            return register(subject_name(topic, is_key, record()))

        def serialize(value: Any, /) -> bytes:
            nonlocal encode
            if encode is None:
                encode = encoder(registered())
            return encode(value)

        def from_json(value: Any, /) -> Any:
            nonlocal convert
            if convert is None:
                convert = (lambda given: given) if converter is None else converter(registered())
            return convert(value)

        return Serde(
            name,
            serialize,
            deserialize,
            immutable,
            for_topic,
            from_json=from_json,
            header=_HEADERS[bool(is_key)],
            type=type,
        )

    return Serde(name, no_topic, deserialize, immutable, for_topic, type=type)
