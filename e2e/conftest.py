"""One cluster, one operator and one broker for all tests; failed tests leave evidence in `build/e2e/`."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.clusters import Place, open_cluster
from e2e.commands import WORK, Lacking
from e2e.evidence import Logs, dump
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.pauses import Event, table
from tests.support import choices
from tests.support.fixtures import processes, standstills  # noqa: F401  (fixtures)
from tests.support.measuring import figures as reported
from tests.support.measuring.figures import figures  # noqa: F401  (fixture)
from tests.support.patience import PATIENCE

NAMESPACE = "millpond-e2e"
OTHER_NAMESPACES = ("millpond-e2e-tenants", "millpond-e2e-worst-days")

_TEST_S = 900
_EVENTS = pytest.StashKey[list[Event]]()
_DUMP = pytest.StashKey[tuple[Cluster, tuple[str, ...]]]()


def pytest_configure(config: pytest.Config) -> None:
    """Record the events and figures of the run, and tell pytest the mark of the tests that decide about a change."""
    config.addinivalue_line("markers", "core: decides about a change: install, life cycle, failover, snapshot, chart")
    config.stash[_EVENTS] = []
    reported.register(config)


@pytest.hookimpl(trylast=True)  # after -m and -k have chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeout of each test and its fixtures, since a cluster is slow."""
    for item in items:
        choices.record(f"test {item.nodeid}")
        item.add_marker(pytest.mark.timeout(PATIENCE * _TEST_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Save logs, objects and events when a test has failed."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed and _DUMP in item.config.stash:
        name = re.sub(r"\W+", "-", f"{Path(item.nodeid.split('::')[0]).stem} {item.name} {report.when}")
        directory = WORK / "failed" / name
        dump(*item.config.stash[_DUMP], directory)
        report.sections.append(("evidence", str(directory)))
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the pauses of all events."""
    if events := config.stash[_EVENTS]:
        told = table(events)
        (WORK / "pauses.txt").write_text(told + "\n")
        terminalreporter.write_line("\n" + told + "\n")


@pytest.fixture(scope="session")
def events(pytestconfig: pytest.Config) -> list[Event]:
    """The events, for the table at the end."""
    return pytestconfig.stash[_EVENTS]


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print the progress of a test at once."""
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")

    def say(text: str) -> None:
        with capture.global_and_fixture_disabled():
            sys.stdout.write(f"\n    {text}\n")
            sys.stdout.flush()

    return say


@pytest.fixture(scope="session")
def place() -> Iterator[Place]:
    """The cluster and the way to load images onto its nodes, without remains of an earlier run."""
    for each in WORK.iterdir() if WORK.exists() else ():
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        with open_cluster() as place:
            yield place
    except Lacking as lacking:
        pytest.exit(str(lacking), returncode=2)


@pytest.fixture(scope="session")
def cluster(place: Place) -> Cluster:
    """The cluster."""
    return place.cluster


@pytest.fixture(scope="session")
def images(place: Place, say: Callable[[str], None]) -> Images:
    """All images, on the nodes; with `E2E_BUILT` set they are there already."""
    if os.environ.get("E2E_BUILT"):
        return Images(place.registry or "millpond")
    say("building the images and bringing them to the nodes")
    try:
        return Images.built_for(place)
    except Lacking as lacking:
        pytest.exit(str(lacking), returncode=2)


@pytest.fixture(scope="session")
def operator(
    cluster: Cluster, images: Images, pytestconfig: pytest.Config, say: Callable[[str], None]
) -> Iterator[Installation]:
    """The operator, installed as documented; it stays in the cluster."""
    installation = Installation(cluster, images.operator, images.content(images.operator))
    namespaces = (installation.namespace, NAMESPACE, *OTHER_NAMESPACES)
    pytestconfig.stash[_DUMP] = (cluster, namespaces)
    with Logs(cluster, namespaces):
        say("installing the operator")
        installation.install()
        yield installation


@pytest.fixture(scope="session")
def kafka(cluster: Cluster, images: Images, operator: Installation, say: Callable[[str], None]) -> Iterator[Kafka]:
    """A broker in a namespace of its own, with the applications."""
    cluster.recreate_namespace(NAMESPACE)
    say("starting a broker")
    with Kafka(cluster, NAMESPACE, images.broker) as kafka:
        yield kafka
