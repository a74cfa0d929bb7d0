"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer. It never sleeps.

All that happens is a function of what is called and of the seed: there are no threads, no sockets, and no other clocks.
`looptime` moves the clock of an ordinary loop in the same way. This loop also has the network and the processes of a
simulated machine, which need hold of each callback before it is called.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import io
import itertools
import socket
import ssl
from asyncio import base_events, sslproto
from collections.abc import Callable
from typing import Any

import aiohttp
import aiohttp.connector

from tests.simulation import processes
from tests.simulation.network import Listener, Network, Socket
from tests.simulation.processes import Process, collect
from tests.simulation.tls import tls_protocol

__all__ = ("Deadlock", "Livelock", "VirtualLoop")

#: Each turn takes so long, as it would anywhere: who asks for the time over and over sees it pass.
_TURN_S = 5e-5
_LOCAL = frozenset({"127.0.0.1", "localhost", "0.0.0.0", "::1", "", None})
_MOST_CANCELLED = 1_000
#: Turns in a row in which something was ready to run: 50 virtual seconds without a pause.
_MOST_BUSY_TURNS = 1_000_000
#: Turns after which garbage is looked for.
_COLLECT_AFTER = 20_000


class Deadlock(AssertionError):
    """Nothing can happen any more, but a task still waits."""


class Livelock(AssertionError):
    """Something is always ready to run, so the clock never advances."""


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task that belongs to a process and whose place in sets is the same in each run."""

    def __init__(self, coroutine: Any, **options: Any) -> None:
        self.number = next(options["loop"].numbers)
        context = options.get("context")
        process = processes.CURRENT.get() if context is None else context.get(processes.CURRENT)
        super().__init__(coroutine, **options)
        self.process = process
        if process is not None:
            process.tasks[self] = None
            self.add_done_callback(_forget, context=options.get("context"))

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Future(asyncio.Future):  # type: ignore[type-arg]
    """A future whose place in sets is the same in each run."""

    number: int | None = None
    process: Process | None = None

    def __hash__(self) -> int:
        if self.number is None:
            self.number = next(self.get_loop().numbers)  # type: ignore[attr-defined]
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


def _forget(task: asyncio.Task[Any]) -> None:
    assert isinstance(task, _Task)
    assert task.process is not None
    task.process.tasks.pop(task, None)


class VirtualLoop(base_events.BaseEventLoop):
    """The loop.

    Args:
        start: its time at the beginning, in seconds.

    Attributes:
        network: its ports and connections.
        numbers: of tasks and connections: they are their hashes, so that sets of them have the same order in each run.
        processes: that are alive.
        undead: tasks of those that were killed which could not be closed.
        ending: the simulation is over.
        frozen: some objects are not looked at by the garbage collector before the end.
        failures: what `call_exception_handler` was told, but for errors of killed processes.
        most_busy_turns: in a row, before it raises Livelock.
    """

    def __init__(self, start: float = 1_000.0) -> None:
        super().__init__()
        self._now = start
        self._turns = self._busy_turns = 0
        self.most_busy_turns = _MOST_BUSY_TURNS
        self.numbers = itertools.count()
        self.network = Network()
        self.processes: dict[Process, None] = {}
        self.undead: list[asyncio.Task[Any]] = []
        self.ending = self.frozen = False
        self._generators: dict[int, Process | None] = {}
        self.failures: list[dict[str, Any]] = []
        self.set_task_factory(lambda loop, coroutine, **options: _Task(coroutine, loop=loop, **options))
        self.set_exception_handler(lambda loop, context: self._failed(context))

    # Time.

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled
        if self._timer_cancelled_count > _MOST_CANCELLED:
            self._sweep()
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        self._now += _TURN_S
        self._turns += 1
        if self._turns % _COLLECT_AFTER == 0:
            collect(self)
        if not ready and not self._stopping:
            if not scheduled:
                raise Deadlock(f"Nothing can happen any more at {self._now:.3f} s.\n{self._dump()}")
            self._now = max(self._now, scheduled[0]._when)
            self._busy_turns = 0
        self._busy_turns += 1
        if self._busy_turns > self.most_busy_turns:
            self._busy_turns = 0
            raise Livelock(f"Something is ready to run in {self.most_busy_turns} turns in a row: {self._ready_tasks()}")
        while scheduled and scheduled[0]._when <= self._now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        current = processes.CURRENT
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(current)
            if process is None or process.running:
                handle._run()
            else:
                process.park(handle)

    def forget(self, process: Process) -> None:
        """Drop the timers of a process that was killed."""
        current = processes.CURRENT
        self._scheduled[:] = [each for each in self._scheduled if each._context.get(current) is not process]
        heapq.heapify(self._scheduled)
        self._timer_cancelled_count = sum(handle._cancelled for handle in self._scheduled)

    def _sweep(self) -> None:
        kept = []
        for handle in self._scheduled:
            if handle._cancelled:
                handle._scheduled = False
            else:
                kept.append(handle)
        heapq.heapify(kept)
        self._scheduled[:], self._timer_cancelled_count = kept, 0

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        future.process = processes.CURRENT.get()
        return future

    def thaw(self, process: Process) -> None:
        """Let a frozen process continue with what was due meanwhile."""
        self._ready.extend(process.thaw())

    # Generators that nobody iterates any more.

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        self._generators[id(agen)] = processes.CURRENT.get()  # nothing refers to it weakly when it is finalized
        super()._asyncgen_firstiter_hook(agen)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        process = self._generators.pop(id(agen), None)
        if process is None:
            super()._asyncgen_finalizer_hook(agen)
        elif process.alive:
            process.run(super()._asyncgen_finalizer_hook, agen)

    # What would be threads, names and sockets elsewhere.

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        if host not in _LOCAL:
            raise socket.gaierror(socket.EAI_NONAME, f"'{host}' is not known in the simulation")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", int(port)))]

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: Any = None,
        port: Any = None,
        *,
        ssl: ssl.SSLContext | None = None,
        **_: Any,
    ) -> Listener:
        return self.network.listen(self, protocol_factory, port, ssl)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        sock: Socket | None = None,
        server_hostname: str | None = None,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if sock is not None:
            port = sock.port
        elif host not in _LOCAL:
            raise socket.gaierror(socket.EAI_NONAME, f"'{host}' is not known in the simulation")
        assert port is not None
        end = self.network.connect(self, port)
        protocol = protocol_factory()
        if not ssl:
            end.begin(protocol)
            return end, protocol
        waiter = self.create_future()
        secured = tls_protocol(self, protocol, ssl, waiter=waiter, server_hostname=server_hostname or host)
        end.begin(secured)
        try:
            await waiter
        except BaseException:
            end.close()
            raise
        return secured._app_transport, protocol

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:
        """Do nothing: simulated processes get no signals."""

    def remove_signal_handler(self, sig: int) -> bool:
        """Do nothing: there are none."""
        return False

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        """There is no selector to wake."""

    # Trouble.

    def _failed(self, context: dict[str, Any]) -> None:
        process = getattr(context.get("task") or context.get("future"), "process", None)
        if process is not None and not process.alive:
            return
        self.failures.append(context)
        self.default_exception_handler(context)

    def _ready_tasks(self) -> str:
        """Return the names of the tasks that run next."""
        owners = (getattr(handle._callback, "__self__", None) for handle in self._ready)
        tasks = [each for each in owners if isinstance(each, asyncio.Task)]
        return ", ".join(f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')})" for task in tasks)

    def _dump(self) -> str:
        text = io.StringIO()
        for task in sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, "number", 0)):
            process = getattr(task, "process", None)
            if process is None or process.alive:
                task.print_stack(limit=3, file=text)
        return text.getvalue()


_start_connection = aiohttp.connector.aiohappyeyeballs.start_connection


async def start_connection(addr_infos: Any, *, loop: Any = None, **options: Any) -> Any:
    """Replace `aiohappyeyeballs.start_connection`, which opens real sockets for aiohttp."""
    if not isinstance(loop, VirtualLoop):
        return await _start_connection(addr_infos, loop=loop, **options)
    return Socket(int(addr_infos[0][4][1]))


def _forgiven(kind: type) -> None:
    """Delete objects of a virtual loop without a warning that they were not closed: killed processes close nothing."""
    original = kind.__del__  # type: ignore[attr-defined]

    def finalize(self: Any, *args: Any, **options: Any) -> None:
        if not isinstance(getattr(self, "_loop", None), VirtualLoop):
            original(self, *args, **options)

    kind.__del__ = finalize  # type: ignore[attr-defined]


for _kind in (
    aiohttp.ClientSession,
    aiohttp.connector.BaseConnector,
    aiohttp.connector.Connection,
    aiohttp.ClientResponse,
    asyncio.StreamWriter,
    sslproto._SSLProtocolTransport,
):
    _forgiven(_kind)
