"""Spark in this process, one session for all tests of a run, and an application for snapshots."""

from __future__ import annotations

import contextlib
import gc
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millpond import serdes
from millpond.broker.java import JavaNotFound
from millpond.errors import SnapshotError
from millpond.state import WindowStoreBuilder
from millpond_spark.session import require_spark, session
from tests.conftest import CreateTopic
from tests.snapshots.changelogs import BUILDERS
from tests.spark.changelogs import PARTITIONS, Application
from tests.support.broker import Broker

#: One Spark runs all jobs, so the JVM's second compiler pays, which the JVMs of brokers in tests go without.
_LONG_LIVED = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Spark with two executor threads, and with all jars for tables; skip the test where Spark cannot start."""
    with contextlib.ExitStack() as stack:
        try:
            require_spark()
            started = stack.enter_context(session("local[2]", _LONG_LIVED, catalog="s3://any"))
        except (JavaNotFound, SnapshotError) as error:
            pytest.skip(str(error))
        yield started


@pytest.fixture(autouse=True)
def _sockets() -> Iterator[None]:
    """Collect the sockets that pyspark leaves unclosed here, and not in the next test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def application(broker: Broker, app_id: str, create_topic: CreateTopic) -> Application:
    """An application with a store of every kind, one of them in memory, and empty changelogs."""
    in_memory = WindowStoreBuilder(
        name="memory",
        key=serdes.Bytes,
        value=serdes.Bytes,
        retention_ms=200_000,
        window_size_ms=60_000,
        persistent=False,
    )
    builders = {**BUILDERS, "in_memory_window": in_memory}
    return Application(broker.bootstrap_servers, app_id, create_topic("input", PARTITIONS), builders)


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Random choices that depend on the run's seed."""
    return random.Random(seed)


@pytest.fixture
def snapshot(spark: Any, tmp_path: Path) -> Callable[..., Any]:
    """Make a snapshot of an application in `tmp_path / "snapshots"`."""
    from millpond_spark.job import create_snapshot

    def make(application: Application, **options: Any) -> Any:
        return create_snapshot(
            application.topology,
            application.config,
            str(tmp_path / "snapshots"),
            lambda: contextlib.nullcontext(spark),
            **options,
        )

    return make
