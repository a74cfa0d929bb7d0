"""Every primitive, windowed and change serde writes exactly what Kafka's own serializer writes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from millpond import serdes
from millpond.broker import jars
from millpond.broker.java import JavaNotFound, find_jdk

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.tsv"


def _windowed(text: str) -> serdes.Windowed[str]:
    key, start, end = text.split("|")
    return serdes.Windowed(key, int(start), int(end))


def _change(text: str) -> tuple[str | None, ...]:
    def side(shown: str) -> str | None:
        if "*" not in shown:
            return None if shown == "null" else shown
        letter, count = shown.split("*")
        return letter * int(count)

    return tuple(map(side, text.split("|")))


def _list_of(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """The text before the colon counts the entries, because an empty entry is an empty text."""

    def entries(text: str) -> list[Any]:
        count, _, shown = text.partition(":")
        parts = shown.split(",") if int(count) else []
        return [None if part == "null" else read(part) for part in parts]

    return entries


def _lists_of_numbers(text: str) -> list[list[int | None] | None]:
    lists = [None if part == "null" else part.split(",") for part in text.split(";")]
    return [None if part is None else [None if one == "null" else int(one) for one in part if one] for part in lists]


PRIMITIVES: dict[str, tuple[serdes.Serde[Any], Callable[[str], Any]]] = {
    "String": (serdes.String, str),
    "Short": (serdes.Short, int),
    "Int": (serdes.Int, int),
    "Long": (serdes.Long, int),
    "Float": (serdes.Float, float),
    "Double": (serdes.Double, float),
    "Boolean": (serdes.Boolean, lambda text: text == "true"),
    "UUID": (serdes.UUID, UUID),
    "Bytes": (serdes.Bytes, bytes.fromhex),
    "ByteBuffer": (serdes.ByteBuffer, lambda text: memoryview(bytes.fromhex(text))),
}

READ: dict[str, tuple[serdes.Serde[Any], Callable[[str], Any]]] = {
    **PRIMITIVES,
    **{f"List({name})": (serdes.ListSerde(serde), _list_of(read)) for name, (serde, read) in PRIMITIVES.items()},
    "List(List(Int))": (serdes.ListSerde(serdes.ListSerde(serdes.Int)), _lists_of_numbers),
    "TimeWindowed": (serdes.TimeWindowedSerde(serdes.String, timedelta(seconds=5)), _windowed),
    "SessionWindowed": (serdes.SessionWindowedSerde(serdes.String), _windowed),
    "Change": (serdes.ChangeSerde(serdes.String), _change),
}


CASES = [tuple(line.split("\t")) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def _shown(data: bytes) -> str:
    """Long bytes as the golden file shows them: their ends and their length."""
    text = data.hex()
    return text if len(data) <= 80 else f"{text[:16]}..{len(data)}..{text[-16:]}"


@pytest.mark.parametrize(("name", "value", "written"), CASES)
def test_bytes_equal_those_of_kafkas_serializer(name: str, value: str, written: str) -> None:
    """A value becomes the bytes Kafka 4.1 writes for it, and those bytes become the value again."""
    serde, read = READ[name]
    expected = read(value)
    data = serde.serialize(expected)
    assert _shown(data) == written
    again = serde.deserialize(data)
    assert again == expected
    if "Buffer" not in name:
        assert str(again) == str(expected)  # tells -0.0 from 0.0


def test_the_golden_file_covers_every_serde() -> None:
    """No serde whose bytes Kafka defines is left out of the comparison."""
    assert {name for name, _, _ in CASES} == set(READ)


@pytest.mark.usefixtures("processes")
@pytest.mark.slow
def test_the_golden_file_is_what_kafka_writes() -> None:
    """The checked-in file is the output of Kafka's serializers."""
    try:
        java = find_jdk() / "bin" / "java"
    except JavaNotFound:
        pytest.skip("compiling the Java side needs a JDK")
    printed = subprocess.run(
        [
            java, "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", jars.classpath("kafka-streams"),
            HERE / "java" / "GoldenSerdes.java",
        ],
        check=True, capture_output=True, timeout=100, env={**os.environ, "LC_ALL": "C.UTF-8"},
    ).stdout.decode()  # fmt: skip
    assert printed == GOLDEN.read_text(encoding="utf-8")
