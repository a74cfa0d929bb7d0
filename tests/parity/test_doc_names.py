"""The page of names has the serdes and stores that a Java program writes most, and what it says is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import millpond as mp

PAGE = Path("docs/kafka-streams-names.md")
#: The methods of `org.apache.kafka.common.serialization.Serdes`, of Kafka 4.1.
SERDES = (
    "Boolean", "ByteArray", "ByteBuffer", "Bytes", "Double", "Float", "Integer", "ListSerde", "Long", "Short", "String",
    "UUID", "Void", "serdeFrom",
)  # fmt: skip


@pytest.mark.parametrize("name", SERDES)
def test_each_serde_of_kafka_is_on_the_page(name: str) -> None:
    """Beside one of millpond that exists."""
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and f"`Serdes.{name}(" in line]
    found = re.findall(r"mp\.(\w+)", row.split("|")[2])
    assert found
    assert all(hasattr(mp, each) for each in found)


@pytest.mark.parametrize("builder", ["KeyValueStoreBuilder", "WindowStoreBuilder", "SessionStoreBuilder"])
def test_stores_in_memory_are_on_the_page(builder: str) -> None:
    text = PAGE.read_text().partition("## Stores\n")[2].partition("\n## ")[0]
    assert re.search(rf"mp\.{builder}\(.*persistent=False\)", text)
    assert "persistent" in inspect.signature(getattr(mp, builder)).parameters


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("Serdes", r"Serdes\.Integer\(\) is mp\.Int"),
        ("Integer", r"mp\.Int\b"),
        ("ByteArray", r"mp\.Bytes"),
        ("Stores", r"persistent=False puts one into memory"),
    ],
)
def test_a_name_of_java_says_what_to_write(name: str, cure: str) -> None:
    with pytest.raises(AttributeError, match=cure):
        getattr(mp, name)
