"""Starting and stopping Spark's session, and its logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from millpond_spark.session import silence_py4j


@pytest.fixture
def shown() -> Iterator[list[str]]:
    """What the root logger shows. `caplog` also listens to loggers that do not propagate when a test begins."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("name", ["py4j.clientserver", "py4j.java_gateway"])
def test_what_py4j_logs_of_an_interrupt_is_not_shown(
    name: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j logs a traceback when the connection to the JVM ends while it is closed."""
    monkeypatch.setattr(logging.getLogger("py4j"), "propagate", True)
    logging.getLogger(name).error("Exception occurred while shutting down connection")
    assert shown == ["Exception occurred while shutting down connection"]
    shown.clear()
    silence_py4j()
    logging.getLogger(name).error("Exception occurred while shutting down connection")
    assert shown == []


def test_other_loggers_stay_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Only the logs of py4j, which repeat its errors, are dropped."""
    silence_py4j()
    logging.getLogger("millpond").warning("heard")
    assert [record.message for record in caplog.records] == ["heard"]
