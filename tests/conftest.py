"""Fixtures for all tests: a real broker, topics of one's own, application ids nobody else has."""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import settings

from tests.cluster.fixtures import api, api_server, background, crds, namespace  # noqa: F401  (fixtures)
from tests.support import broker as support
from tests.support import kafka

# Generated cases must not fail for being slow: the machine may be small and busy. pytest-timeout guards each test.
settings.register_profile("millpond", deadline=None)
settings.load_profile("millpond")


# Threads that outlive a test, such as simulated workers, may log to what pytest captured for it and has closed since.
logging.raiseExceptions = False

_OTHER_BROKER = "MILLPOND_TEST_BOOTSTRAP_SERVERS"
_SESSION = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this project's tests."""
    parser.addoption("--seed", type=int, default=None, help="Repeat simulations that printed this seed.")


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest's main process own what its workers share."""
    if hasattr(config, "workerinput"):
        config.stash[_SESSION] = config.workerinput["millpond"]
        return
    directory = Path(tempfile.mkdtemp(prefix="millpond-tests-"))
    support.open_session(directory)
    # Taken out of the environment: millpond itself refuses variables of its own that are no settings.
    config.stash[_SESSION] = {"directory": str(directory), "bootstrap": os.environ.pop(_OTHER_BROKER, "")}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell each pytest-xdist worker what its main process knows."""
    node.workerinput["millpond"] = node.config.stash[_SESSION]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Forget the run. Its broker ends with the process."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[_SESSION]["directory"], ignore_errors=True)


@pytest.fixture(scope="session")
def run_directory(pytestconfig: pytest.Config) -> Path:
    """A directory that all processes of this run of tests share."""
    return Path(pytestconfig.stash[_SESSION]["directory"])


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> support.Broker:
    """A Kafka broker shared by all tests: the embedded one, or `$MILLPOND_TEST_BOOTSTRAP_SERVERS`.

    Tests that stop or kill a broker start an `EmbeddedBroker` of their own.
    """
    session = pytestconfig.stash[_SESSION]
    if session["bootstrap"]:
        return support.Broker(session["bootstrap"])
    return support.shared_broker(Path(session["directory"]))


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
