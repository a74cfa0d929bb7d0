"""The processes of a session: their logs, their ports, and what the session does when they end."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.cli.dev.child_processes import ChildReaper, ProcessLog
from millpond.cli.dev.remote import CommandFailed
from millpond.cli.dev.supervisor import Fleet, WorkersFail
from millpond.cli.dev.worker import Launch, WorkerProcess, can_listen
from millpond.drops import Drop
from millpond.runtime.config.model import Config
from millpond.runtime.processing.drop_log import DropLog, LateForJoin, LateWindow


def test_log_tail_yields_the_last_error_and_the_address(tmp_path: Path) -> None:
    """Lines may be written in parts; a new process in the same log starts without an error or an address."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    log.read()
    with path.open("a") as file:
        for piece in (
            "2026-01-01T00:00:00.000Z INFO x metrics on http://127.0.0.1:5/metrics\nmill",
            "pond: no topic 'x'.\n",
        ):
            file.write(piece)
            file.flush()
            log.read()
    assert (log.metrics, log.error) == ("http://127.0.0.1:5/metrics", "no topic 'x'.")
    log.new_process()
    assert (log.metrics, log.error) == ("", "")
    with path.open("a") as file:
        file.write("Traceback (most recent call last):\n  File x\nValueError: bad\n")
    log.read()
    assert log.error == "ValueError: bad"


def test_logs_as_json_yield_the_same(tmp_path: Path) -> None:
    """With `log.format = json`, the address is an address, and the reason of an end is the message of an error."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    lines = (
        {"level": "INFO", "message": "HTTP server: metrics on http://127.0.0.1:5/metrics"},
        {"level": "CRITICAL", "message": "no topic 'x'.", "traceback": "Traceback …\nValueError: bad"},
        {"level": "INFO", "message": "stopped after an error"},
    )
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines) + "{not JSON\n[]\n")
    log.read()
    assert (log.metrics, log.error) == ("http://127.0.0.1:5/metrics", "no topic 'x'.")


def test_a_log_yields_the_first_line_about_drops_of_each_operator_and_reason(tmp_path: Path) -> None:
    """The terminal tells it; later lines of the same are in the log only."""
    path = tmp_path / "w0.log"
    log = ProcessLog(path)
    with path.open("w") as file:
        drops = DropLog()
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("2026-01-01T00:00:00.000Z %(levelname)s x %(message)s"))
        logger = logging.getLogger("millpond.runtime.processing.drop_log")
        logger.addHandler(handler)
        try:
            for now_ms in (0, 100_000, 200_000):
                task = SimpleNamespace(topic="in", partition=0, offset=7, now_ms=lambda now=now_ms: now)
                for reason in (Drop.NULL_KEY, Drop.NULL_VALUE):
                    for _ in range(3):
                        drops.note("count", reason, task)
                drops.note("count", Drop.LATE, task, LateWindow(0, 5, 5, 9))
                drops.note("outcomes", Drop.LATE, task, LateForJoin(5))
                drops.report()
        finally:
            logger.removeHandler(handler)
    log.read()
    assert [line.split(" a ")[0] for line in log.drops] == [
        "node 'count' dropped",
        "node 'count' dropped",
        "node 'count' dropped",
        "join 'outcomes': results of",
    ]
    assert "without a key" in log.drops[0]


class NoCoordinator:
    """A coordinator that accepts everything."""

    url, child, listening = "http://c", None, True

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def drain(self, worker: str) -> None: ...
    async def undrain(self, worker: str) -> None: ...
    async def report_gone(self, worker: str) -> None: ...

    async def view(self) -> SimpleNamespace:
        return SimpleNamespace(members=(), owners={"0_0": "w0", "0_1": "w1"}, active={})

    async def wait(self) -> int:
        return await asyncio.Future()


@asynccontextmanager
async def running_fleet(
    directory: Path, script: str, *, patient: bool = False
) -> AsyncIterator[tuple[Fleet, list[int]]]:
    """Run a fleet of two processes that run a script; yield it, and the ports that were given at each start."""
    ports: list[int] = []

    def command(ordinal: int, _url: str, port: int = 0) -> list[str]:
        ports.append(port)
        return [sys.executable, "-I", "-S", "-c", script, str(9000 + ordinal)]

    config = Config.of({"application.id": "a", "bootstrap.servers": "b:1"})
    launch = SimpleNamespace(config=config, directory=directory, command=command)
    with ChildReaper() as reaper:
        fleet = Fleet(launch, 2, reaper, patient=patient)  # type: ignore[arg-type]
        fleet.coordinator = NoCoordinator()  # type: ignore[assignment]
        task = asyncio.create_task(fleet.run())
        try:
            yield fleet, ports
        finally:
            fleet.stop()
            await task


def read(fleet: Fleet) -> list[WorkerProcess]:
    for worker in fleet.workers.values():
        worker.log.read()
    return list(fleet.workers.values())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what processes do has no event
            await asyncio.sleep(0.01)


FAILS = """
print('{"level": "CRITICAL", "message": "topic x is missing: create it."}')
raise SystemExit(1)
"""
SERVES = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(f'{{"level": "INFO", "message": "metrics on http://127.0.0.1:{sys.argv[1]}/metrics"}}', flush=True)
signal.pause()
"""


@pytest.mark.usefixtures("processes")
def test_workers_that_never_ran_end_a_session_without_a_terminal_only(tmp_path: Path) -> None:
    """A person at a terminal sees the reason, and keeps the broker; the mended application starts by itself."""

    async def ends() -> None:
        async with running_fleet(tmp_path / "ends", FAILS) as (fleet, _):
            await until(lambda: fleet.stopping)

    async def waits() -> None:
        async with running_fleet(tmp_path / "waits", FAILS, patient=True) as (fleet, ports):
            await until(lambda: len(ports) > 2)
            assert not fleet.stopping
            assert "status 1: topic x is missing: create it; restarting in 1 s" in fleet.events[0].text

    with pytest.raises(WorkersFail, match=r"^topic x is missing: create it\.$"):
        asyncio.run(ends())
    asyncio.run(waits())


@pytest.mark.usefixtures("processes")
def test_a_fleet_of_no_workers_keeps_running(tmp_path: Path) -> None:
    """`scale 0` stops all workers at once, also those that hand over tasks; `scale 2` gives them their old ports."""

    async def run() -> None:
        async with running_fleet(tmp_path, SERVES) as (fleet, ports):
            for _ in range(2):
                await until(lambda: sum(bool(each.log.metrics) for each in read(fleet)) == 2)
                assert fleet.scale(1) == "draining w1"  # which never ends, as nobody takes its task
                assert fleet.scale(0) == "stopping all workers; the broker keeps running"
                await until(lambda: not fleet.workers)
                assert fleet.scale(0) == "no workers run already"
                assert fleet.scale(2) == "starting w0, w1"
            await until(lambda: len(ports) == 6)
            assert ports == [0, 0, 9000, 9001, 9000, 9001]
            assert not fleet.stopping
            with pytest.raises(CommandFailed, match="no worker left"):
                fleet.scale(-1)

    asyncio.run(run())


@pytest.mark.usefixtures("processes")
def test_a_killed_worker_is_not_killed_twice_in_its_line(tmp_path: Path) -> None:
    """The end of a process without an error in its log is told once."""

    async def run() -> None:
        async with running_fleet(tmp_path, "import os; os.kill(os.getpid(), 9)", patient=True) as (fleet, _):
            await until(lambda: bool(fleet.events))
            assert fleet.events[0].text.count("was killed by SIGKILL") == 1
            assert "was killed by SIGKILL; restarting in 1 s" in fleet.events[0].text

    asyncio.run(run())


@pytest.mark.usefixtures("processes")
def test_no_line_of_the_log_is_the_reason_of_a_sigkill(tmp_path: Path) -> None:
    """Whoever sent it, or the kernel, did not ask the worker: an older error has nothing to do with it."""
    script = """
print('{"level": "ERROR", "message": "topic x: an older error."}', flush=True)
import os; os.kill(os.getpid(), 9)
"""

    async def run() -> None:
        async with running_fleet(tmp_path, script, patient=True) as (fleet, _):
            await until(lambda: bool(fleet.events))
            assert "was killed by SIGKILL; restarting in 1 s" in fleet.events[0].text
            assert "older error" not in fleet.events[0].text
            assert any(worker.note == "was killed by SIGKILL" for worker in fleet.workers.values())

    asyncio.run(run())


def test_a_worker_gets_its_last_port_while_it_is_free(tmp_path: Path) -> None:
    """A program that queries the worker finds it again; a port that another process took meanwhile is not used."""
    settings = {"application.id": "a", "bootstrap.servers": "b:1"}
    launch = Launch("app:build", Config.of(settings), {}, None, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert not can_listen("127.0.0.1", port)
        assert f"http.port={port}" not in launch.command(1, "http://c", port)
    assert f"http.port={port}" in launch.command(1, "http://c", port)
    fixed = Launch("app:build", Config.of({**settings, "http.port": 18080}), {}, None, tmp_path)
    assert "http.port=18081" in fixed.command(1, "http://c", port)
