"""The console of a session: what it shows of processes, and who may ask it."""

from __future__ import annotations

import asyncio
import socket
import time
from types import SimpleNamespace

import aiohttp
import pytest

from millpond.cli.dev.console import SessionConsole, serving_console, session_overview
from millpond.cli.dev.status import SessionEvent, SessionEventKind, SessionStatus, WorkerPhase, WorkerStatus
from millpond.errors import ConfigError
from millpond.protocol.overview import ApplicationOverview
from tests.console.pond import view

STATUS = SessionStatus(
    application="pond", title="pond", guarantee="exactly_once", bootstrap_servers="b:1", directory="/logs", wanted=4,
    tasks=6, running={f"0_{each}": "pond-0" for each in range(5)}, epoch="7.42", coordinator_note="port 7 is in use",
    workers=(
        WorkerStatus(worker="pond-0", phase=WorkerPhase.RUNNING, pid=1),
        WorkerStatus(worker="pond-1", phase=WorkerPhase.PAUSED, pid=2),
        WorkerStatus(worker="pond-2", phase=WorkerPhase.DRAINING, pid=3, note="2 tasks to hand over"),
        WorkerStatus(worker="pond-3", phase=WorkerPhase.KILLED, note="restarting in 1 s"),
    ),
    events=(
        SessionEvent(number=1, at_s=2.5, text="all 6 tasks are processed", kind=SessionEventKind.COMPLETE),
        SessionEvent(number=2, at_s=7.0, text="pond-3 died", kind=SessionEventKind.LOST),
    ),
)  # fmt: skip
LAUNCH = SimpleNamespace(config=SimpleNamespace(processing_guarantee="exactly_once"))


def seen() -> ApplicationOverview:
    return session_overview(STATUS, view(), LAUNCH, time.monotonic() - 10)  # type: ignore[arg-type]


def test_processes_and_tasks_are_shown_together() -> None:
    """The coordinator knows tasks and rates; the session knows why a process does not run."""
    found = seen()
    assert [(each.worker, each.state, each.trouble) for each in found.workers] == [
        ("pond-0", "alive", ""),
        ("pond-1", "alive", "paused by SIGSTOP"),
        ("pond-2", "draining", "2 tasks to hand over"),
        ("pond-3", "gone", "killed; restarting in 1 s"),
    ]
    summary = found.summary
    assert (summary.phase, summary.ready, summary.message) == ("Starting", False, "port 7 is in use")
    assert (summary.workers_ready, summary.workers_wanted, summary.records_per_second) == (1, 4, 4_957.5)
    assert [each.task for each in found.moves] == ["0_2", "1_2"]


def test_events_have_the_time_of_the_day() -> None:
    """The newest is first."""
    before = time.monotonic()
    found = seen()
    took = time.monotonic() - before
    assert [(each.reason, each.warning) for each in found.events] == [("WorkerLost", True), ("AllTasksRun", False)]
    ages = [(found.at_ms - each.at_ms) / 1000 for each in found.events]
    assert ages == pytest.approx([3.0 + took / 2, 7.5 + took / 2], abs=took / 2 + 0.002)


async def ask(url: str, path: str, host: str | None = None) -> tuple[int, str]:
    url, headers = url.replace("/console/", path), {"Host": host} if host else {}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


def test_session_is_shown_on_this_machine_only_under_its_own_names() -> None:
    """A request under another host name is rejected, so a foreign web page reads nothing."""

    async def run() -> None:
        source = SessionConsole("pond")
        async with serving_console(source, 0) as url:
            assert url.startswith("http://127.0.0.1:")
            port = url.split(":")[2].split("/")[0]
            assert (await ask(url, "/api/applications/-/pond"))[0] == 503
            source.observe = seen
            assert (await ask(url, "/api/applications/-/pond"))[0] == 200
            assert (await ask(url, "/api/applications/-/pond", f"localhost:{port}"))[0] == 200
            assert (await ask(url, "/api/applications/-/pond", f"evil.example:{port}"))[0] == 403
            assert (await ask(url, "/console/", "evil.example"))[0] == 403
            assert (await ask(url, "/api/applications/-/other"))[0] == 404
            assert (await ask(url, "/api/applications/flights/pond"))[0] == 404
            assert (await ask(url, "/api/applications/-/pond/topology.svg"))[1].startswith("<svg")

    asyncio.run(run())


def test_port_in_use_is_one_sentence() -> None:
    """With the cure."""

    async def run(port: int) -> None:
        async with serving_console(SessionConsole("pond"), port):
            pass

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} is in use: give another one with --console-port"):
            asyncio.run(run(port))
