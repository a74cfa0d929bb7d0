"""Values of a schema registry are recognized by their bytes, and the message names the options that show them."""

from __future__ import annotations

import pytest

from millpond.cli.records.registry_hints import looks_like_registry
from tests.cli.conftest import Millpond
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

AVRO = b"\x00\x00\x00\x00\x09\x06tea\x00\x00"
SAID = "look like those of a schema registry"


def test_a_zero_byte_and_a_schema_id_are_recognized() -> None:
    """Also the large ids of a registry in the cloud."""
    assert looks_like_registry(AVRO, "orders")
    assert looks_like_registry(b"\x00" + (100_001).to_bytes(4, "big") + b"\x06tea", "orders")


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"tea and milk", bytes(12), (1_767_000_000_000).to_bytes(8, "big"), b"\x00\x00\x00\x00\x09"],
)
def test_other_bytes_are_not(data: bytes) -> None:
    """Long numbers, such as times, begin with a zero byte, too."""
    assert not looks_like_registry(data, "orders")


@pytest.mark.parametrize("topic", ["app-counts-changelog", "app-orders-repartition"])
def test_internal_topics_have_formats_of_their_own(topic: str) -> None:
    """Some of their values begin with a time."""
    assert not looks_like_registry(AVRO, topic)


def test_consume_names_the_options(broker: Broker, create_topic: CreateTopic, millpond: Millpond) -> None:
    """On standard error, once, and not if a format is chosen."""
    topic = create_topic("orders")
    kafka.produce(broker.bootstrap_servers, topic, [("ann", AVRO)] * 2)
    place = ("--bootstrap-servers", broker.bootstrap_servers)
    said = " ".join(millpond("consume", topic, *place).err.split())
    assert said.count(f"the values {SAID}: --value avro shows them (or protobuf, or jsonschema), with --registry") == 1
    assert SAID not in millpond("consume", topic, "--value", "bytes", *place).err


def test_consume_names_the_option_of_keys(broker: Broker, create_topic: CreateTopic, millpond: Millpond) -> None:
    """Both options if both parts need one."""
    topic = create_topic("orders")
    kafka.produce(broker.bootstrap_servers, topic, [(AVRO, AVRO)])
    said = " ".join(millpond("consume", topic, "--bootstrap-servers", broker.bootstrap_servers).err.split())
    assert f"the keys and values {SAID}: --key avro --value avro shows them" in said
