"""Fixtures for all tests: a real broker, topics of one's own, application ids nobody else has."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import settings

from tests.support import broker as support
from tests.support import kafka

# Generated cases must not fail for being slow: the machine may be small and busy. pytest-timeout guards each test.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest's main process own what its workers share."""
    if not hasattr(config, "workerinput"):
        support.open_session(Path(tempfile.mkdtemp(prefix="millpond-tests-")))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the run. Its broker ends with the process."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(support.SESSION_VARIABLE), ignore_errors=True)


@pytest.fixture(scope="session")
def broker() -> support.Broker:
    """A Kafka broker shared by all tests: the embedded one, or `$MILLPOND_TEST_BOOTSTRAP_SERVERS`.

    Tests that stop or kill a broker start an `EmbeddedBroker` of their own.
    """
    if given := os.environ.get("MILLPOND_TEST_BOOTSTRAP_SERVERS"):
        return support.Broker(given)
    return support.shared_broker()


class CreateTopic(Protocol):
    """What the `create_topic` fixture gives."""

    def __call__(self, name: str = "topic", partitions: int = 1, **config: str) -> str:
        """Create a topic whose name starts with `name` and return its full, unique name."""


@pytest.fixture
def create_topic(broker: support.Broker) -> Iterator[CreateTopic]:
    """Create topics that no other test sees; config keys have `_` for `.`. They are deleted after the test."""
    created: list[str] = []

    def create(name: str = "topic", partitions: int = 1, **config: str) -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        settings_of_topic = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(broker.bootstrap_servers, topic, partitions, settings_of_topic)
        created.append(topic)
        return topic

    yield create
    kafka.delete_topics(broker.bootstrap_servers, created)


@pytest.fixture
def app_id(request: pytest.FixtureRequest) -> Iterator[str]:
    """An `application.id` no other test has. If the test used the broker, the application's topics go with it."""
    stem = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{stem}-{uuid.uuid4().hex[:8]}"
    yield name
    if "broker" in request.fixturenames:
        address = request.getfixturevalue("broker").bootstrap_servers
        kafka.delete_topics(address, kafka.topic_names(address, prefix=f"{name}-"))
