"""The example of a web service, as its page tells to run it, with a broker of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.broker import EmbeddedBroker
from tests.demo.commands import ROOT, Shell, blocks
from tests.support import kafka
from tests.support.broker import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PAGE = "examples/service/README.md"


@pytest.fixture
def shell(own_brokers: type[EmbeddedBroker], tmp_path: Path, processes: object) -> Iterator[Shell]:
    """A shell in the repository, which uses free ports."""
    broker, http, metrics = (str(free_port()) for _ in range(3))
    opened = Shell(ROOT, {"9092": broker, "8000": http}, tmp_path / "state-home")
    opened.export(f"export MILLPOND_HTTP_PORT={metrics}")
    opened.export("export MILLPOND_BOOTSTRAP_SERVERS=127.0.0.1:9092")
    yield opened
    opened.close()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl, which the page uses, is not installed")
def test_the_service_runs_as_its_page_says(shell: Shell) -> None:
    """It answers as shown, stops in order, and has its balances after it starts again."""
    steps = [line for language, text in blocks(PAGE) if language == "sh" for line in text.splitlines()]
    [shown] = [text.splitlines() for language, text in blocks(PAGE) if language == "text"]
    broker, serve, ready, *transfers, balance, booked, tests = steps
    shell.start(broker).wait_for("a broker listens")
    service = shell.start(serve)
    service.wait_for("Uvicorn running on")
    kafka.eventually(lambda: shell.run(ready) == shown[0], "the service is ready", timeout_s=60)
    assert all('"offset"' in shell.run(each) for each in transfers)
    kafka.eventually(lambda: shell.run(balance) == shown[1], "the balance is shown", timeout_s=30)
    assert shell.run(booked) == shown[2]
    service.stop()
    assert "Traceback" not in service.said

    shell.start(serve).wait_for("Uvicorn running on")
    assert '"offset"' in shell.run(transfers[-1])
    kafka.eventually(lambda: shell.run(balance) == shown[1], "the balance is shown again", timeout_s=60)
    shell.stop()
    assert tests == "python -m pytest examples/service"
