"""Fixtures that say what a test needs: processes of its own, a broker that it may stop, or an S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.broker import EmbeddedBroker
from tests.support import versitygw as s3

__all__ = ("own_broker", "own_brokers", "processes", "versitygw")


@pytest.fixture(scope="session")
def processes() -> None:
    """Mark a test that starts processes: workers, commands, type checkers, Java. It ends them by itself."""


@pytest.fixture(scope="session")
def own_brokers(processes: None) -> type[EmbeddedBroker]:
    """What makes embedded brokers, for tests that start them and end them."""
    return EmbeddedBroker


@pytest.fixture(scope="module")
def own_broker(own_brokers: type[EmbeddedBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A running broker of the module's own, which tests may stop and kill if they start it again."""
    with own_brokers(tmp_path_factory.mktemp("own-broker")) as made:
        yield made


@pytest.fixture(scope="session")
def versitygw(processes: None) -> Path:
    """The program of a real S3 server; where there is none, tests that need it are skipped."""
    try:
        return s3.find()
    except s3.VersitygwMissing as missing:
        pytest.skip(str(missing))
