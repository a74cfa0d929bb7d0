"""The CPU time of one heartbeat at a coordinator with many workers: `python -m bench.heartbeat_cost`.

A coordinator with its normal HTTPS server runs in a thread of this process, and knows all workers. A few connections
send it heartbeats of all of them in turn, as fast as it answers. The CPU time is that of its thread, so the result does
not depend on what else the machine does. `python -m bench.heartbeats` measures response times too, on an idle machine.

    python -m bench.heartbeat_cost workers=2000 tasks=10000 heartbeats=4000 tls=yes loads=yes
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from bench.heartbeats import Fleet, Way, response
from bench.options import from_arguments
from millpond.protocol import Answer
from millpond_operator.coordinator import CoordinatorServer, EngineOptions
from tests.cluster.certificates import Authority

_CONNECTIONS = 20
_APP = "bench"


class Server:
    """A coordinator in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.coordinator: CoordinatorServer

    def call(self, coroutine: Any) -> Any:
        """Run a coroutine in the thread, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(600)

    async def start(self, tls: ssl.SSLContext | None) -> None:
        """Listen."""
        self.coordinator = CoordinatorServer()
        # No session ends, however long the machine is busy otherwise.
        await self.coordinator.add(_APP, EngineOptions(session_timeout=timedelta(hours=1)))
        await self.coordinator.start(ssl_context=tls)

    async def introduce(self, fleet: Fleet) -> None:
        """Let all workers join, and carry out their assignment."""
        application = self.coordinator.application(_APP)
        assert application is not None
        for _ in range(100):
            for worker in fleet.workers.values():
                answer = await application.heartbeat(worker.heartbeat(0))
                assert isinstance(answer, Answer)
                worker.answer, worker.running = answer, True
                worker.follow(answer)
            if fleet.complete():
                return
            await asyncio.sleep(0.2)
        raise TimeoutError("not settled after a hundred rounds")

    def cpu(self) -> float:
        """Return the CPU time of the thread, in seconds."""
        found: Future[float] = Future()
        self._loop.call_soon_threadsafe(lambda: found.set_result(time.thread_time()))
        return found.result(60)


async def _send(way: Way, fleet: Fleet, heartbeats: int) -> None:
    workers = itertools.cycle(fleet.workers.values())
    left = itertools.count()

    async def connection() -> None:
        reader, writer = await way.open()
        while next(left) < heartbeats:
            writer.write(next(workers).request(0))
            await response(reader)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(_CONNECTIONS)))


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = {"workers": "2000", "tasks": "10000", "heartbeats": "4000", "tls": "yes", "loads": "yes"}
    options |= from_arguments(arguments)
    server, way = Server(), Way(0)
    with tempfile.TemporaryDirectory(prefix="millpond-heartbeats-") as directory:
        context = None
        if options["tls"] == "yes":
            authority = Authority(Path(directory))
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(authority.server("coordinator", "coordinator.bench"))
            way = Way(0, ssl.create_default_context(cafile=str(authority.ca_file)), "coordinator.bench")
        server.call(server.start(context))
    way = replace(way, port=server.coordinator.port)
    before_mb = psutil.Process().memory_info().rss / 2**20
    fleet = Fleet(way, int(options["workers"]), int(options["tasks"]), loads=options["loads"] == "yes")
    server.call(server.introduce(fleet))
    asyncio.run(_send(way, fleet, 500))
    cpu, count = server.cpu(), int(options["heartbeats"])
    asyncio.run(_send(way, fleet, count))
    cost_us = (server.cpu() - cpu) / count * 1e6
    size = len(next(iter(fleet.workers.values())).request(0))
    print(
        f"{int(options['workers']):,} workers: {cost_us:.0f} us of CPU for a heartbeat of {size:,} bytes; "
        f"{int(options['workers']) / 1.76 * cost_us / 1e6:.0%} of a core at one per 1.76 s and worker; "
        f"{psutil.Process().memory_info().rss / 2**20 - before_mb:.0f} MB for coordinator and simulated workers"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
