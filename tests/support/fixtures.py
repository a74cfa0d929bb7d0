"""Fixtures for needs of a test: child processes, a broker that it may stop, an S3 server, or Helm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import OwnBroker, free_port
from tests.support.measuring.standstills import Standstills
from tests.support.programs import actionlint as actionlint_program
from tests.support.programs import helm as helm_programs
from tests.support.programs import prometheus as prometheus_package
from tests.support.programs import versitygw as s3
from tests.support.programs.go import GoProgramMissing

__all__ = ("actionlint", "helm", "own_broker", "own_brokers", "processes", "prometheus", "standstills", "versitygw")


@pytest.fixture(scope="session")
def processes() -> None:
    """Mark a test that starts processes: workers, commands, type checkers, Java. The test stops them."""


@pytest.fixture(scope="session")
def own_brokers(processes: None) -> type[OwnBroker]:
    """Return the class of embedded brokers, for tests that start and stop them."""
    return OwnBroker


@pytest.fixture(scope="module")
def own_broker(own_brokers: type[OwnBroker], tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnBroker]:
    """Run a broker for one module; tests may stop or kill it if they start it again.

    Meanwhile nobody else takes its port.
    """
    with own_brokers(tmp_path_factory.mktemp("own-broker"), port=free_port()) as made:
        yield made


@pytest.fixture(scope="session")
def standstills(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standstills]:
    """Measure the machine's standstills, which a bound in real time leaves out."""
    with Standstills(tmp_path_factory.mktemp("standstills")) as measured:
        yield measured


@pytest.fixture(scope="session")
def versitygw(processes: None) -> Path:
    """Return the program of a real S3 server; skip the test if there is none."""
    try:
        return s3.find()
    except s3.GoProgramMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def actionlint(processes: None) -> Path:
    """Return the program actionlint; skip the test if there is none."""
    try:
        return actionlint_program.PROGRAM.find()
    except GoProgramMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def helm() -> dict[str, Path]:
    """Return the programs of Helm 3 and Helm 4 by name; skip the test if there are none."""
    try:
        return {name: helm_programs.find(name) for name in (helm_programs.HELM_3, helm_programs.HELM_4)}
    except helm_programs.GoProgramMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def prometheus() -> prometheus_package.Tools:
    """Return the programs prometheus and promtool; skip the test if there are none."""
    try:
        return prometheus_package.find()
    except prometheus_package.PrometheusMissing as missing:
        pytest.skip(str(missing))
