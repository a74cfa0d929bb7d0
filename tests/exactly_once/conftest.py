"""One application per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.exactly_once.processes import Application
from tests.exactly_once.truth import PARTITIONS


@pytest.fixture
def application(
    broker: Any,
    create_topic: Any,
    app_id: str,
    tmp_path: Path,
    processes: None,
) -> Iterator[Application]:
    """An application with its own topics; its processes end with the test."""
    made = Application(
        broker.bootstrap_servers,
        app_id,
        create_topic("source", PARTITIONS),
        create_topic("target", PARTITIONS),
        tmp_path,
    )
    yield made
    made.end()
