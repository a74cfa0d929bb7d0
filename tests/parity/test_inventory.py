"""The inventory of Kafka Streams' names is what its jars have."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from millpond.broker import jars, java
from tests.parity import inventory

_SOURCE = Path(__file__).parents[1] / "oracle" / "java" / "Inventory.java"


def test_the_inventory_is_that_of_the_jars(processes: None, tmp_path: Path) -> None:
    """A newer version of the jars adds its names: `python tests/oracle/make_goldens.py` writes them."""
    try:
        home = java.find_jdk()
    except java.JavaNotFound as missing:
        pytest.skip(str(missing))
    command = [home / "bin" / "java", "-cp", jars.classpath("kafka-streams"), _SOURCE, "run", tmp_path]
    subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=100)
    assert (tmp_path / "inventory.txt").read_text() == inventory.FILE.read_text(encoding="utf-8")
