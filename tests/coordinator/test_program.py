"""`python -m millpond_operator.coordinator` as a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.protocol import Epoch
from millpond.protocol.client import CoordinatorClient
from tests.coordinator.support import APP, connected, eventually, heartbeat, topology

pytestmark = pytest.mark.usefixtures("processes")

NO_EPOCH = Epoch()
COMMAND = (sys.executable, "-m", "millpond_operator.coordinator", "--application", APP)


@contextlib.contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield process, json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate()


def answered(url: str, worker: str = "w0", epoch: Epoch = NO_EPOCH) -> Epoch | None:
    """The epoch of the first answer; None for a refusal."""

    async def scenario() -> Epoch | None:
        client = CoordinatorClient(url, heartbeat(worker, topology=None), topology())
        client.report({}, {}, {}, epoch)
        async with connected(client):
            await eventually(lambda: client.connected_at or client.refusal, "an answer")
            news = client.news()
            return news.epoch if news is not None else None

    return asyncio.run(scenario())


def test_program_stores_its_term_and_ends_on_sigterm(tmp_path: Path) -> None:
    """Each start has a later term; a signal stops it in order, with status 0."""
    store = str(tmp_path / "assignment.json")
    terms = []
    for _ in range(2):
        with started("--store", store) as (process, url):
            epoch = answered(url)
            assert epoch is not None
            terms.append(epoch.term)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
    assert terms[1] > terms[0]


def test_program_ends_with_a_reason_when_another_leads() -> None:
    """A worker knows a later term, so this coordinator must not continue."""
    with started() as (process, url):
        assert answered(url, epoch=Epoch(7, 1)) is None
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "Another coordinator leads 'delays'" in errors
        assert "--term" in errors


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--tls-cert", "no-such-cert.pem"), 2, "--tls-key"),
        (("--tls-cert", "no-such-cert.pem", "--tls-key", "no-such-key.pem"), 2, "no-such-cert.pem"),
        (("--token-file", "no-such-tokens"), 2, "tokens"),
        (("--session-timeout", "soon"), 2, "not a duration"),
        (("--session-timeout", "0s"), 2, "1ms or more"),
        (("--port", "1", "--host", "192.0.2.1"), 1, "millpond:"),
    ],
    ids=["no key", "no certificate", "no tokens", "no duration", "no time", "no such address"],
)
def test_unusable_options_end_the_program_with_one_sentence(options: tuple[str, ...], status: int, words: str) -> None:
    """On standard error, without a traceback."""
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == status, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
