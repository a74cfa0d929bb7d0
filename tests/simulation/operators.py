"""The operator as a simulated process: the same program in the loop of the simulation."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import aiohttp

from millpond.errors import MillpondError
from millpond.protocol import clock
from millpond_operator.controllers.process.lease_thread import same_loop
from millpond_operator.controllers.process.operator import operate
from millpond_operator.controllers.settings import Settings
from millpond_operator.kubernetes import LeadershipLost
from tests.cluster.waiting import PATIENCE_S, wait_for
from tests.operating.operators import Operator
from tests.simulation import processes
from tests.simulation.background import VirtualBackground
from tests.simulation.processes import Process

__all__ = ("SimulatedOperator",)

log = logging.getLogger("millpond_operator")

_ANSWER_S = 30.0
_LOGGERS = ("millpond_operator", "millpond", "kopf", "asyncio", "aiohttp")


class _Log(logging.Handler):
    """The log of one operator's processes."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.processes: set[Process] = set()

    def emit(self, record: logging.LogRecord) -> None:
        process = processes.CURRENT.get()
        if process in self.processes and process.alive:
            text = self.format(record)
            self.lines.append(f"{clock.now():%Y-%m-%d %H:%M:%S.%f} {record.levelname} {record.name} {text}")


class SimulatedOperator(Operator):
    """An operator in the loop of `api.background`, which is virtual."""

    def __init__(self, *args: Any, **options: Any) -> None:
        background = args[0].background
        assert isinstance(background, VirtualBackground)
        self._background = background
        self._process: Process | None = None
        self._stopped = asyncio.Event()
        self._status: int | None = None
        self._lines = _Log()
        super().__init__(*args, **options)

    def start(self) -> None:
        self.kill()
        process = self._process = Process(self._background.loop, f"{self.name}#{self.starts}")
        self.starts += 1
        self._status, self._stopped = None, asyncio.Event()
        self._lines.processes.add(process)
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            if self._lines not in logger.handlers:
                logger.addHandler(self._lines)
        main = process.spawn(self._main(self._stopped))

        def over(_main: asyncio.Task[int]) -> None:
            if process.alive:
                self._status = main.result()
                process.kill()

        main.add_done_callback(over)

    async def _main(self, stopped: asyncio.Event) -> int:
        try:
            await operate(Settings.read(environ=self.environment()), stopped, same_loop)
        except LeadershipLost as error:
            log.error("%s", error)
            return 1
        except (MillpondError, OSError) as error:
            log.error("millpond-operator: %s", error)
            return 1
        except Exception:
            log.exception("the operator ended")
            return 1
        return 0

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def stop(self) -> int:
        assert self._process is not None
        self._process.run(self._stopped.set)
        return self.ended()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.freeze()

    def thaw(self) -> None:
        assert self._process is not None
        self._background.loop.thaw(self._process)

    def ended(self, seconds: float = PATIENCE_S) -> int:
        wait_for(lambda: self._status is not None, f"{self.name} ends", seconds, self.tail, poll_s=0.05)
        assert self._status is not None
        return self._status

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.alive

    def fetch(self, path: str) -> str:
        return self._background.call(self._fetch(path))

    async def _fetch(self, path: str) -> str:
        try:
            async with (
                asyncio.timeout(_ANSWER_S),
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self.http_port}{path}", raise_for_status=True) as answer,
            ):
                return await answer.text()
        except aiohttp.ClientError as error:
            raise OSError(str(error)) from error

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self._lines.lines[-lines:])

    def __exit__(self, *_: object) -> None:
        self.kill()
        with contextlib.suppress(ValueError):
            for name in _LOGGERS:
                logging.getLogger(name).removeHandler(self._lines)

    def _free_port(self) -> int:
        return self._background.loop.network.free_port()
