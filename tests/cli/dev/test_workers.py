"""The processes of a session: their ports, and what the session does when they end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from millpond.cli.dev.child_processes import Child, ChildReaper
from millpond.cli.dev.remote import CommandFailed
from millpond.cli.dev.status import WorkerPhase
from millpond.cli.dev.supervisor import Fleet, WorkersFail
from millpond.cli.dev.worker import Launch, WorkerProcess, can_listen
from millpond.runtime.config.model import Config


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
DROPS = "2026-01-01T00:00:00.000Z WARNING x node 'a' dropped a late record at in-0.\n"
SERVES = """
import signal, sys
# A handler could run just before `signal.pause`, which then waits for ever: `sigwait` takes the blocked signal.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print(f'{{"level": "INFO", "message": "metrics on http://127.0.0.1:{sys.argv[1]}/metrics"}}', flush=True)
signal.sigwait([signal.SIGTERM])
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
                assert fleet.scale(0) == "no worker runs"
                assert fleet.scale(2) == "starting w0, w1"
                assert fleet.scale(2) == "2 workers run already"
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


@pytest.mark.usefixtures("processes")
def test_a_new_worker_is_told_nothing_of_those_before_it(tmp_path: Path) -> None:
    """Neither of a session with the same --data-dir, nor of the time before `scale 0`."""
    (tmp_path / "w0.log").write_text("2026-01-01T00:00:00.000Z ERROR x old.\n" + DROPS.replace("'a'", "'b'"))
    script = f"print({DROPS!r}, flush=True)\n{SERVES}"

    async def run() -> None:
        async with running_fleet(tmp_path, script) as (fleet, _):
            for _ in range(2):
                await until(lambda: sum(bool(each.log.metrics) for each in read(fleet)) == 2)
                assert [len(each.log.drops) for each in read(fleet)] == [1, 1]
                assert all(not each.shown_note for each in fleet.workers.values())
                fleet.scale(0)
                await until(lambda: not fleet.workers)
                fleet.scale(2)
            assert fleet.usual == 2

    asyncio.run(run())


@pytest.mark.usefixtures("processes")
def test_the_error_of_a_worker_is_shown_while_it_is_tried_again(tmp_path: Path) -> None:
    """A worker that fails at its start is most of the time at its next start."""
    script = """
import pathlib, sys, time
here = pathlib.Path(f'DIRECTORY/{sys.argv[1]}')
print('millpond: unexpected error in millpond 1: ValueError: bad (app.py, line 3).', flush=True)
if here.exists():
    time.sleep(60)
here.touch()
raise SystemExit(70)
"""

    async def run() -> None:
        tried = script.replace("DIRECTORY", str(tmp_path))
        async with running_fleet(tmp_path, tried, patient=True) as (fleet, _):
            await until(lambda: len(fleet.workers) == 2 and all(each.restarts == 1 for each in fleet.workers.values()))
            for worker in fleet.workers.values():
                assert worker.phase is WorkerPhase.STARTING
                assert worker.shown_note == "unexpected error in millpond 1: ValueError: bad (app.py, line 3)."
            assert "ValueError: bad (app.py, line 3); restarting" in fleet.events[0].text

    asyncio.run(run())


def test_a_child_is_in_the_session_of_its_parent(tmp_path: Path, processes: None) -> None:
    """Linux may leave a session of its own without time on a busy machine; a group keeps Ctrl-C away just as well."""

    async def scenario() -> None:
        with ChildReaper() as reaper:
            child = await Child.start(["sleep", "60"], tmp_path / "log", reaper)
            assert os.getsid(child.pid) == os.getsid(0)
            assert os.getpgid(child.pid) != os.getpgid(0)
            child.send(signal.SIGKILL)
            await child.wait()

    asyncio.run(scenario())
