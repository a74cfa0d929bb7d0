"""Confluent's framing: a zero byte, the schema's id, and for Protobuf the path to the message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from millpond.errors import SerializationError
from millpond.serdes import varint
from millpond.serdes.serde import Serde

from .client import RegisteredSchema, SubjectName

__all__ = ("PREFIX_LENGTH", "frame", "message_path", "prefix", "schema_id", "skip_message_path")

PREFIX_LENGTH = 5

_prefix = struct.Struct(">BI")

Encode = Callable[[Any], bytes]


def prefix(schema_id: int) -> bytes:
    """What stands before every value of a schema."""
    return _prefix.pack(0, schema_id)


def schema_id(data: bytes) -> int:
    """The id of the schema that `data` was written with.

    Raises:
        ValueError: the data was not written with a schema registry.
    """
    if len(data) < PREFIX_LENGTH or data[0]:
        raise ValueError("it does not begin with a zero byte and a schema id, so no schema registry serde wrote it")
    return int.from_bytes(data[1:PREFIX_LENGTH], "big")


def message_path(indexes: Sequence[int]) -> bytes:
    """The path to a Protobuf message in its file: zigzag varints, their count first; the first message is one zero."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(varint.write(number) for number in (len(indexes), *indexes))


def skip_message_path(data: bytes) -> int:
    """Where the message begins after the path at `PREFIX_LENGTH`.

    Raises:
        ValueError: the data ends before.
    """
    count, at = varint.read(data, PREFIX_LENGTH, len(data))
    for _ in range(count):
        _, at = varint.read(data, at, len(data))
    return at


def frame(
    name: str,
    subject_name: SubjectName,
    register: Callable[[str], RegisteredSchema],
    encoder: Callable[[RegisteredSchema], Encode],
    record: Callable[[], str | None],
    deserialize: Callable[[bytes], Any],
    immutable: bool,
) -> Serde[Any]:
    """A serde whose schema is registered when the first value of a topic is written, and not before.

    A topic that is only read needs no right to register anything, and a topology can be built without a registry.

    Args:
        name: the serde's name.
        subject_name: how subjects are named.
        register: what to ask of the registry for a subject.
        encoder: builds, from the registered schema, the function that encodes values with their prefix.
        record: the record's name, where the subject is named after it.
        deserialize: decodes any topic's bytes, since they carry the schema's id.
        immutable: whether the values are.
    """
    cached: dict[tuple[str, bool], Serde[Any]] = {}

    def no_topic(value: Any, /) -> NoReturn:
        raise SerializationError(f"{name} writes for one topic: call for_topic on it first")

    def for_topic(topic: str, is_key: bool) -> Serde[Any]:
        known = cached.get((topic, is_key))
        if known is None:
            known = cached[topic, is_key] = _of_topic(topic, is_key)
        return known

    def _of_topic(topic: str, is_key: bool) -> Serde[Any]:
        encode: Encode | None = None

        def serialize(value: Any, /) -> bytes:
            nonlocal encode
            if encode is None:
                encode = encoder(register(subject_name(topic, is_key, record())))
            return encode(value)

        return Serde(name, serialize, deserialize, immutable, for_topic)

    return Serde(name, no_topic, deserialize, immutable, for_topic)
