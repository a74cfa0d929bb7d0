"""Notices that one call of user code takes long: looked for from the HTTP thread, since the loop's thread is in it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

from millpond.errors import MillpondError
from millpond.runtime.blockers import Blockers
from millpond.runtime.processing.compile import NodeBinding
from millpond.runtime.processing.stream_task import StreamTask
from millpond.user_code import is_the_users

from .parts import WorkerParts

__all__ = ("Place", "StallWatch", "WorkerStalled", "place_of_thread", "watch_for_stalls")

log: logging.Logger = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 1.0
#: Turns that last shorter are not looked into.
_LONG_TURN_S = 1.0
#: The age of a call at its first warning, and at its second one; from then on each comes after twice the time.
_FIRST_S, _SECOND_S = 10.0, 30.0
_BLOCKER = "user code"


class WorkerStalled(MillpondError):
    """The worker has been in one call of user code for long. It is reported, and never raised."""


class Place(NamedTuple):
    """The place at which a thread processes records."""

    task: str
    node: str | None
    record: str | None
    """The record, as `orders-3 offset 1204`; None outside of one, as in a timer or in calls for a whole batch."""
    code: str | None
    """The innermost call of the user's code, as `app.py, line 7, in slow()`."""

    def __str__(self) -> str:
        where = f"in node '{self.node}' of task {self.task}" if self.node is not None else f"in task {self.task}"
        where += f" at {self.record}" if self.record is not None else ""
        return f"{where} ({self.code})" if self.code is not None else where


class StallWatch:
    """Watches one worker's loop. It costs nothing per record: only a thread in a long turn is looked at.

    Args:
        worker: the worker's id.
        last_turn: returns the start of the loop's last turn, by `clock`.
        place: returns where the loop's thread processes records now; None if it does not.
        blockers: the worker's blockers, which heartbeats and the HTTP interface report.
        clock: seconds, from any origin.
    """

    def __init__(
        self,
        worker: str,
        last_turn: Callable[[], float],
        place: Callable[[], Place | None],
        blockers: Blockers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._last_turn = last_turn
        self._place = place
        self._blockers = blockers
        self._clock = clock
        self._seen: tuple[float, str, str | None, str | None] | None = None
        self._since = 0.0
        self._next_s = _FIRST_S
        self._told = ""

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Compare the place of the loop's thread with that of the last look, and warn if it is the same for long."""
        now, turn = self._clock(), self._last_turn()
        place = self._place() if now - turn >= _LONG_TURN_S and not self._blockers.wait_for_registry else None
        seen = None if place is None else (turn, place.task, place.node, place.record)
        if seen is None or seen != self._seen:
            self._end(now)
            self._seen, self._since = seen, now
            return
        lasted = now - self._since
        if lasted < self._next_s:
            return
        self._told = f"{place}"
        text = (
            f"worker {self._worker} has processed nothing for {lasted:.0f} s: it is in one call {place}. "
            "See what the call waits for, and limit its time; the worker's other tasks wait, too."
        )
        log.warning("%s", text)
        self._blockers.add(_BLOCKER, WorkerStalled(text), 0.0)
        self._next_s = max(_SECOND_S, 2 * self._next_s)

    def _end(self, now: float) -> None:
        """Forget the last call; tell its end if it was told before."""
        if self._told:
            self._blockers.remove(_BLOCKER)
            log.info(
                "worker %s goes on after %.0f s in one call %s", self._worker, now - self._since, self._told
            )  # fmt: skip
        self._told, self._next_s = "", _FIRST_S


def watch_for_stalls(parts: WorkerParts, last_turn: Callable[[], float]) -> None:
    """Watch the loop in this thread, and standstills of the process, from the HTTP thread, until that ends."""
    parts.metrics.http.spawn(parts.standstills.run())
    place = partial(place_of_thread, threading.get_ident())
    parts.metrics.http.spawn(StallWatch(parts.config.worker_id, last_turn, place, parts.blockers).run())


def place_of_thread(thread_id: int) -> Place | None:
    """Return where a thread processes records; None if it does not."""
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented function for this
    node: str | None = None
    code: str | None = None
    while frame is not None:
        task = frame.f_locals.get("self")
        if isinstance(task, StreamTask):
            message = task.context.message
            record = None if message is None else f"{message.topic()}-{message.partition()} offset {message.offset()}"
            return Place(str(task.id), node, record, code)
        node = node or _node_of(frame)
        if code is None and is_the_users(frame):
            name = frame.f_code.co_name
            function = "" if name in ("<lambda>", "<module>") else f", in {name}()"
            code = f"{PurePath(frame.f_code.co_filename).name}, line {frame.f_lineno}{function}"
        frame = frame.f_back
    return None


def _node_of(frame: FrameType) -> str | None:
    """Return the name of the node whose function this is: it has the node, or the node's function for failures."""
    for name in ("node", "failed"):
        value = frame.f_locals.get(name)
        value = getattr(value, "__self__", value)
        if isinstance(value, NodeBinding):
            return value.name
    return None
