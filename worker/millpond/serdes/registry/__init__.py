"""Avro, Protobuf and JSON Schema with a Confluent Schema Registry.

The bytes are Confluent's: a zero byte, the schema's id in 4 bytes, for Protobuf the path to the message in its file,
then the encoded value. A schema is registered (or looked up) once per topic, with the first value that is written,
and fetched once per id, with the first value that is read. The registry is not called per record.
"""

from __future__ import annotations

from .avro import Avro
from .avro_schema import avro_schema
from .client import Reference, SchemaRegistry, record_name, topic_name, topic_record_name
from .json_schema import JsonSchema
from .protobuf import Protobuf

__all__ = (
    "Avro",
    "JsonSchema",
    "Protobuf",
    "Reference",
    "SchemaRegistry",
    "avro_schema",
    "record_name",
    "topic_name",
    "topic_record_name",
)
