"""`log.format = json`: every line on standard error is one record of JSON with fixed field names."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millpond.cli.session import Session
from millpond.json_logs import JsonFormatter, log_as_json, logs_json
from millpond.runtime.config.model import Config
from tests.cli.conftest import COUNT, ROOTS, Application, Process
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

FIELDS = {"time", "level", "logger", "thread", "message"}
OF_ERRORS = {"error_type", "error_message", "traceback"}
OF_WORKERS = {"application_id", "worker"}

FAILING = """
    from millpond.dsl import StreamsBuilder

    def build():
        raise RuntimeError("no topology, \\n for the reason: ä")
"""


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Returns what was logged; the logs of the process are as before after the test."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, threading.excepthook
    yield lambda: lines(capsys.readouterr().err)
    root.handlers[:], level, threading.excepthook = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def lines(text: str) -> list[dict[str, Any]]:
    """Return the lines of a text, each of which is JSON."""
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_has_fixed_fields(stderr: Callable[[], list[dict[str, Any]]]) -> None:
    """The text with its arguments in one line, whatever characters it has, and nothing else of the record."""
    log_as_json(application_id="orders", worker="w0")
    log = logging.getLogger("shop")
    log.warning("%d of\n%s", 3, "ä\udc80", extra={"password": "hunter2"})
    (line,) = stderr()
    assert line.keys() == FIELDS | OF_WORKERS
    assert (line["level"], line["logger"], line["message"]) == ("WARNING", "shop", "3 of\nä\\udc80")
    assert (line["application_id"], line["worker"], line["thread"]) == ("orders", "w0", "MainThread")
    assert line["time"][10] == "T"
    assert line["time"].endswith("Z")
    assert logs_json()
    assert not Session().live, "nothing redraws a terminal between lines of JSON"


def test_exceptions_are_in_their_line(stderr: Callable[[], list[dict[str, Any]]]) -> None:
    """Type, text and traceback; of a log call, of a thread and of a warning, and of arguments that do not fit."""
    log_as_json()
    log = logging.getLogger("shop")
    try:
        raise ValueError("too\nlong")
    except ValueError:
        log.exception("failed")
    thread = threading.Thread(target=lambda: 1 // 0, name="adding")
    thread.start()
    thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", stacklevel=1)
    log.warning("%d", "text")
    logged, ended, warned, unfit = stderr()
    assert logged.keys() == ended.keys() == FIELDS | OF_ERRORS
    assert (logged["error_type"], logged["error_message"]) == ("ValueError", "too\nlong")
    assert 'raise ValueError("too' in logged["traceback"]
    assert (ended["error_type"], ended["message"]) == ("ZeroDivisionError", "thread adding: ended by an exception")
    assert "old" in warned["message"]
    assert unfit["message"] == "%d"


def test_secrets_are_hidden_as_in_text() -> None:
    """A configured password appears in no line."""
    config = Config.of(
        {"application.id": "a", "bootstrap.servers": "b:1", "sasl.password": "hunter2", "app.token": "x2"}
    )
    record = logging.LogRecord("a", logging.INFO, "", 0, "%s %s", (config, config.as_mapping()), None)
    line = json.loads(JsonFormatter().format(record))
    assert "[hidden]" in line["message"]
    assert "hunter2" not in str(line)
    assert "x2" not in str(line)


def test_a_command_that_fails_says_so_in_json(start: Callable[..., Process], application: Application) -> None:
    """An exception of the application's module is a line, too: nothing else is on standard error."""
    process = start(
        "run", f"{application(FAILING)}:build", "--application-id", "orders", "--bootstrap-servers", "127.0.0.1:1",
        "--set", "log.format=json",
    )  # fmt: skip
    assert process.wait() == 2
    *_, last = said = lines(process.said)
    assert all(FIELDS | OF_WORKERS <= line.keys() <= FIELDS | OF_WORKERS | OF_ERRORS for line in said)
    assert "no topology" in last["message"]
    assert "no topology" in last["traceback"]
    assert last["level"] == "CRITICAL"


def test_a_worker_logs_only_json(
    broker: Broker,
    start: Callable[..., Process],
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From its start to its end."""
    topic = create_topic("words")
    monkeypatch.setenv("WORDS", topic)
    monkeypatch.setenv("COUNTS", create_topic("counts"))
    process = start(
        "run", f"{application(COUNT)}:count", "--application-id", app_id,
        "--bootstrap-servers", broker.bootstrap_servers, "--set", "log.format=json",
    )  # fmt: skip
    kafka.eventually(lambda: process.says("-> running"), "the worker runs")
    process.signal(15)
    assert process.wait() == 0
    said = lines(process.said)
    assert {(line["application_id"], line["worker"]) for line in said} == {(app_id, "w0")}
    assert any("SIGTERM received" in line["message"] for line in said)


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize(
    "arguments",
    [
        ["millpond_operator", "--log-format", "json", "--kubeconfig", "/no/such/file"],
        ["millpond_operator.coordinator", "--log-format", "json", "--application", "a", "--host", "192.0.2.1"],
    ],
    ids=["operator", "coordinator"],
)
def test_operator_and_coordinator_log_json(arguments: list[str]) -> None:
    """An error that ends them is the last line."""
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], env={**os.environ, "PYTHONPATH": ROOTS}, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert ended.returncode in (1, 2), ended.stderr
    *_, last = said = lines(ended.stderr)
    assert all(FIELDS <= line.keys() <= FIELDS | OF_ERRORS for line in said)
    assert last["level"] == "CRITICAL"
