"""The original, in a Java process that all tests of a run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond.broker.java import JavaNotFound, find_jdk
from tests.differential.original import Original


@pytest.fixture(scope="session")
def original() -> Iterator[Original]:
    """Return Kafka Streams in a JVM; skip the test without a JDK."""
    try:
        find_jdk()
    except JavaNotFound as missing:
        pytest.skip(str(missing))
    with Original() as running:
        yield running
