"""Virtual time passes only by timers, at once and in order, and connections behave like those of one machine."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
import uuid

import aiohttp
import pytest
from aiohttp import web

from millpond.protocol import clock
from millpond_operator.controllers.coordinator_host.tls.certificates import issued, load
from tests.simulation.background import VirtualBackground
from tests.simulation.loop import Deadlock, Livelock

_DAY_S = 86_400


@pytest.fixture
def background():
    with VirtualBackground(seed=1) as made:
        yield made


def test_a_hundred_hours_pass_in_a_moment(background):
    """Timers are called at their times and in order."""
    seen = []

    async def work():
        loop = asyncio.get_running_loop()
        began = loop.time()
        for hours in (100, 1, 10):
            loop.call_later(3600 * hours, lambda hours=hours: seen.append((hours, loop.time() - began)))
        await asyncio.sleep(3600 * 101)

    background.call(work(), 1e9)
    assert [hours for hours, _ in seen] == [1, 10, 100]
    assert all(at == pytest.approx(3600 * hours, abs=1e-3) for hours, at in seen)


def test_all_clocks_of_the_control_plane_are_virtual(background):
    """They advance together."""
    before = clock.monotonic(), clock.boottime(), clock.unix_time(), clock.now()
    background.sleep(7200)
    after = clock.monotonic(), clock.boottime(), clock.unix_time(), clock.now()
    assert [round(b - a) for a, b in zip(before[:3], after[:3], strict=True)] == [7200] * 3
    assert round((after[3] - before[3]).total_seconds()) == 7200


def test_real_clocks_come_back_after_a_simulation():
    """Only objects that were created within a simulation keep its clocks."""
    with VirtualBackground() as background:
        background.sleep(1e6)
    for own, real in ((clock.monotonic, time.monotonic), (clock.unix_time, time.time)):
        before, between, after = real(), own(), real()
        assert before <= between <= after


def test_who_waits_for_nothing_is_found(background):
    """The error names the place where it waits."""

    async def stuck():
        await asyncio.Event().wait()

    background.submit(stuck())
    with pytest.raises(Deadlock, match="stuck"):
        background.loop.run_until_complete(asyncio.Event().wait())


def test_asking_for_the_time_over_and_over_ends(background):
    """Time passes even when the test waits for nothing."""

    async def spin():
        until = clock.monotonic() + 0.001
        while clock.monotonic() < until:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    background.call(spin())


def test_a_task_that_never_pauses_is_named(background):
    """Otherwise the run would not end."""

    async def spin():
        while True:  # noqa: ASYNC110 - that is the point
            await asyncio.sleep(0)

    background.loop.most_busy_turns = 1_000
    background.submit(spin())
    with pytest.raises(Livelock, match=r"1000 turns in a row: Task-\d+ \(.*spin\)"):
        background.sleep(3_600)


def test_many_pauses_are_no_livelock(background):
    """They may be arbitrarily short."""

    async def work():
        for _ in range(3_000):
            await asyncio.sleep(1e-3)

    background.loop.most_busy_turns = 1_000
    background.call(work())


def test_an_error_that_nobody_handles_fails_the_simulation():
    """The failure is raised at the end."""

    async def fail():
        raise ZeroDivisionError

    def scenario():
        with VirtualBackground() as background:
            background.submit(fail())
            background.sleep(1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        scenario()


def test_work_for_threads_is_done_at_once(background):
    """Its errors are raised where its results are awaited."""

    async def work():
        assert await asyncio.to_thread(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)

    background.call(work())


def test_http_works_over_the_network_in_memory(background):
    """Large bodies are sent both ways on reused connections."""

    async def work():
        async def echo(request):
            return web.Response(body=await request.read())

        app = web.Application(client_max_size=2**26)
        app.router.add_post("/", echo)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession() as session:
            for size in (1, 900_000, 3):
                async with session.post(f"http://127.0.0.1:{port}/", data=random.randbytes(size)) as answer:
                    assert len(await answer.read()) == size
        await runner.cleanup()
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(f"http://127.0.0.1:{port}/")

    background.call(work())


def test_certificates_expire_by_the_virtual_clock(background):
    """The machine's clock does not matter."""
    made = issued(["localhost"], clock.now())
    serving, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=made.ca)
    load(serving, made)

    async def served(reader, writer):
        writer.close()

    async def serve():
        server = await asyncio.start_server(served, "127.0.0.1", 0, ssl=serving)
        return server.sockets[0].getsockname()[1]

    async def connect():
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        assert await reader.read() == b""
        writer.close()

    port = background.call(serve())
    background.sleep(89 * _DAY_S)
    background.call(connect())
    background.sleep(2 * _DAY_S)
    with pytest.raises(ssl.SSLCertVerificationError, match="not valid"):
        background.call(connect())


def test_all_simulations_begin_at_the_same_moment():
    """Nothing in them depends on the current date."""

    def beginning():
        with VirtualBackground() as background:
            background.sleep(1)
            return clock.now()

    assert beginning() == beginning()


def test_the_same_seed_gives_the_same_random_numbers():
    """Those of uuid and secrets repeat too."""

    def numbers():
        with VirtualBackground(seed=5):
            return random.random(), uuid.uuid4(), random.SystemRandom().random()

    assert numbers() == numbers()
