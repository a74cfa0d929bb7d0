"""Starting and stopping Spark's session, and its logs."""

from __future__ import annotations

import logging

import pytest

from millpond_spark.session import silence_py4j


@pytest.mark.parametrize("name", ["py4j.clientserver", "py4j.java_gateway"])
def test_what_py4j_logs_of_an_interrupt_is_not_shown(
    name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py4j logs a traceback when the connection to the JVM ends while it is closed."""
    monkeypatch.setattr(logging.getLogger("py4j"), "propagate", True)
    logging.getLogger(name).error("Exception occurred while shutting down connection")
    assert [record.message for record in caplog.records] == ["Exception occurred while shutting down connection"]
    caplog.clear()
    silence_py4j()
    logging.getLogger(name).error("Exception occurred while shutting down connection")
    assert caplog.records == []


def test_other_loggers_stay_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Only the logs of py4j, which repeat its errors, are dropped."""
    silence_py4j()
    logging.getLogger("millpond").warning("heard")
    assert [record.message for record in caplog.records] == ["heard"]
