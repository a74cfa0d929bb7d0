"""Simulated processes are frozen, thawed and killed like real ones, with the same effects on others."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.simulation.background import VirtualBackground
from tests.simulation.processes import Process


@pytest.fixture
def background():
    with VirtualBackground(seed=1) as made:
        yield made


@pytest.fixture
def process(background):
    return Process(background.loop, "one")


class Server:
    """Echo lines, and remember those received."""

    def __init__(self, tls=None):
        self.lines = []
        self.ended = False
        self._tls = tls
        self.port = 0

    async def start(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader, writer):
        while line := await reader.readline():
            self.lines.append(line)
            writer.write(line)
        self.ended = True
        writer.close()


async def ticking(seen, every_s=1.0):
    while True:
        await asyncio.sleep(every_s)
        seen.append(asyncio.get_running_loop().time())


def test_a_frozen_process_does_nothing_until_it_is_thawed(background, process):
    """Its timers are late then, those of others are not."""
    own, others = [], []
    process.spawn(ticking(own))
    background.submit(ticking(others))
    background.sleep(3.5)
    process.freeze()
    background.sleep(10)
    assert (len(own), len(others)) == (3, 13)
    background.loop.thaw(process)
    background.sleep(0.1)
    assert len(own) == 4
    background.sleep(2.85)
    assert (len(own), len(others)) == (6, 16)


def test_what_is_sent_to_a_frozen_process_waits_for_it(background, process):
    """Connecting works, since the kernel answers; a response arrives once it is thawed."""
    server = Server()
    process.spawn(server.start())
    background.sleep(0.1)
    process.freeze()

    async def ask():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        return line

    asking = background.submit(ask())
    background.sleep(60)
    assert not asking.done()
    assert not server.lines
    background.loop.thaw(process)
    assert asking.result() == b"hello\n"


def test_a_killed_process_sends_nothing_and_its_ports_are_free(background, process):
    """Its connections end, and what it was about to do never happens."""
    server, client = Server(), Server()

    async def chatter():
        _, writer = await asyncio.open_connection("127.0.0.1", client.port)
        try:
            while True:
                writer.write(b"alive\n")
                await asyncio.sleep(1)
        finally:
            writer.write(b"last words\n")
            await asyncio.sleep(1)
            writer.write(b"later words\n")

    background.call(client.start())
    process.spawn(server.start())
    process.spawn(chatter())
    background.sleep(2.5)

    async def connected():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        answer = await reader.read()
        writer.close()
        return answer

    connection = background.submit(connected())
    background.sleep(0.1)
    process.kill()
    background.sleep(10)
    assert client.lines == [b"alive\n"] * 3
    assert client.ended
    assert connection.result() == b""
    with pytest.raises(ConnectionRefusedError):
        background.call(connected())
    again = Process(background.loop, "again")
    other = Server()
    again.spawn(other.start())
    background.sleep(0.1)
    assert other.port


def test_a_killed_process_reaches_nobody_while_it_is_buried(background, process):
    """Its `finally` blocks run, because Python closes its coroutines, but have no effect."""
    server = Server()
    background.call(server.start())
    tried = []

    async def stubborn():
        with contextlib.suppress(asyncio.CancelledError, GeneratorExit):
            await asyncio.sleep(100)
        tried.append("connecting")
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"from the dead\n")

    process.spawn(stubborn())
    background.sleep(1)
    process.kill()
    background.sleep(200)
    assert tried == ["connecting"]
    assert not server.lines


def test_errors_of_killed_processes_fail_no_simulation():
    """No code is left to handle them."""
    failed = []

    async def fail():
        future = asyncio.get_running_loop().create_future()
        future.set_exception(ZeroDivisionError())
        failed.extend((future, asyncio.current_task()))
        raise ZeroDivisionError

    with VirtualBackground() as background:
        process = Process(background.loop, "one")
        process.spawn(fail())
        background.sleep(1)
        process.kill()
        failed.clear()


def test_a_frozen_process_can_be_killed(background, process):
    """It never continues."""
    seen = []
    process.spawn(ticking(seen))
    background.sleep(1.5)
    process.freeze()
    background.sleep(5)
    process.kill()
    background.loop.thaw(process)
    background.sleep(5)
    assert len(seen) == 1


def test_a_task_that_a_process_starts_is_frozen_with_it(background, process):
    """Callbacks by results of others are late as well."""
    seen = []

    async def parent():
        await asyncio.gather(*(asyncio.create_task(ticking(seen)) for _ in range(3)))

    process.spawn(parent())
    background.sleep(1.5)
    process.freeze()
    background.sleep(5)
    assert len(seen) == 3


def test_who_does_not_read_stops_who_writes(background):
    """A connection buffers no more than a kernel would."""
    state = {}

    async def serve(reader, writer):
        await asyncio.sleep(100)
        while data := await reader.read(65536):
            state["read"] = state.get("read", 0) + len(data)

    async def write():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        for number in range(100):
            writer.write(b"x" * 65536)
            await writer.drain()
            state["written"] = number + 1
        writer.close()

    writing = background.submit(write())
    background.sleep(50)
    assert 2 <= state["written"] < 50
    writing.result()
    background.sleep(200)
    assert state["read"] == 100 * 65536
