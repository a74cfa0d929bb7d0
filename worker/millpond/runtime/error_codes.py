"""The error codes of librdkafka itself. The error codes of brokers are in `KafkaError` under public names.

Each constant is the attribute of `KafkaError` with an underscore before its name.
"""
# ruff: noqa: SLF001 - confluent-kafka has no public names for them

from __future__ import annotations

from confluent_kafka import KafkaError

__all__ = (
    "ALL_BROKERS_DOWN",
    "AUTHENTICATION",
    "AUTO_OFFSET_RESET",
    "BAD_COMPRESSION",
    "BAD_MSG",
    "FATAL",
    "FENCED",
    "GAPLESS_GUARANTEE",
    "NOENT",
    "NOT_IMPLEMENTED",
    "PARTITION_EOF",
    "RESOLVE",
    "SSL",
    "STATE",
    "TIMED_OUT",
    "TRANSPORT",
    "UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC",
    "WAIT_COORD",
)

ALL_BROKERS_DOWN = KafkaError._ALL_BROKERS_DOWN
AUTHENTICATION = KafkaError._AUTHENTICATION
AUTO_OFFSET_RESET = KafkaError._AUTO_OFFSET_RESET
BAD_COMPRESSION = KafkaError._BAD_COMPRESSION
BAD_MSG = KafkaError._BAD_MSG
FATAL = KafkaError._FATAL
FENCED = KafkaError._FENCED
GAPLESS_GUARANTEE = KafkaError._GAPLESS_GUARANTEE
NOENT = KafkaError._NOENT
NOT_IMPLEMENTED = KafkaError._NOT_IMPLEMENTED
PARTITION_EOF = KafkaError._PARTITION_EOF
RESOLVE = KafkaError._RESOLVE
SSL = KafkaError._SSL
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION
UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC
WAIT_COORD = KafkaError._WAIT_COORD
