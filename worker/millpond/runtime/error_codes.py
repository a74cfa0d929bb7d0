"""Error codes that librdkafka makes itself; those of brokers are in `KafkaError` under public names.

Each constant is the attribute of `KafkaError` with an underscore before its name.
"""
# ruff: noqa: SLF001 - confluent-kafka has no public names for them

from __future__ import annotations

from confluent_kafka import KafkaError

__all__ = (
    "ALL_BROKERS_DOWN",
    "AUTHENTICATION",
    "FENCED",
    "GAPLESS_GUARANTEE",
    "NOENT",
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
FENCED = KafkaError._FENCED
GAPLESS_GUARANTEE = KafkaError._GAPLESS_GUARANTEE
NOENT = KafkaError._NOENT
RESOLVE = KafkaError._RESOLVE
SSL = KafkaError._SSL
STATE = KafkaError._STATE
TIMED_OUT = KafkaError._TIMED_OUT
TRANSPORT = KafkaError._TRANSPORT
UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION
UNKNOWN_TOPIC = KafkaError._UNKNOWN_TOPIC
WAIT_COORD = KafkaError._WAIT_COORD
