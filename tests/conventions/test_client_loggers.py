"""Kafka clients of tests have a logger: without one, librdkafka writes to the standard error stream, at any time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENTS = {"AdminClient", "Consumer", "Producer"}


def without_logger(source: str) -> Iterator[int]:
    """Yield the lines of the clients in a module that have no logger, though they log."""
    tree = ast.parse(source)
    clients = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka")
        for name in node.names
        if name.name in CLIENTS
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in clients:
            silent = "'log_level': 0" in ast.unparse(node)
            if not silent and "logger" not in {each.arg for each in node.keywords}:
                yield node.lineno


def test_every_kafka_client_of_a_test_has_a_logger():
    """Lines of librdkafka do not run through pytest's dots."""
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if "confluent_kafka" in (source := file.read_text(encoding="utf-8"))
        for line in without_logger(source)
    ]
    assert found == []


def test_a_client_without_a_logger_is_found():
    """It is named by its line; one that logs nothing is not."""
    source = (
        "from confluent_kafka import Consumer as C, Producer\nC({})\nProducer({}, logger=log)\nC({'log_level': 0})\n"
    )
    assert list(without_logger(source)) == [2]
