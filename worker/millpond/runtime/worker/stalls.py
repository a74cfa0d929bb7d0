"""Notices that one call of user code takes long: looked for from the HTTP thread, since the loop's thread is in it."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

from millpond.errors import MillpondError
from millpond.runtime.blockers import Blockers
from millpond.runtime.processing.compile import NodeBinding
from millpond.runtime.processing.stream_task import StreamTask
from millpond.user_code import is_millponds, is_the_users

from .parts import WorkerParts

__all__ = ("Call", "Place", "StallWatch", "WorkerStalled", "calls_of_thread", "watch_for_stalls")

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


class Call(NamedTuple):
    """A call that a thread is in while it processes records."""

    identity: Hashable
    """Its frame: equal for two looks at one call, and different for two calls of one function at one record."""
    place: Place


class StallWatch:
    """Watches one worker's loop. It costs nothing per record: only a thread in a long turn is looked at.

    The frames of the last look are kept until the next one, since only a frame that lives on tells one long call from
    many short ones.

    Args:
        worker: the worker's id.
        last_turn: returns the start of the loop's last turn, by `clock`.
        calls: returns the calls that the loop's thread is in now, the innermost one first; see `calls_of_thread`.
        blockers: the worker's blockers, which heartbeats and the HTTP interface report.
        clock: seconds, from any origin.
    """

    def __init__(
        self,
        worker: str,
        last_turn: Callable[[], float],
        calls: Callable[[], Sequence[Call]],
        blockers: Blockers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._last_turn = last_turn
        self._calls = calls
        self._blockers = blockers
        self._clock = clock
        self._turn = 0.0
        self._seen: dict[Hashable, float] = {}  # by call of the last look: when it was seen first
        self._since = 0.0
        self._next_s = _FIRST_S
        self._told = ""

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_INTERVAL_S)
            self.look()

    def look(self) -> None:
        """Compare the calls of the loop's thread with those of the last look, and warn if one lasts long."""
        now, turn = self._clock(), self._last_turn()
        before = self._seen if turn == self._turn else {}
        calls = self._calls() if now - turn >= _LONG_TURN_S and not self._blockers.wait_for_registry else ()
        self._turn, self._seen = turn, {each.identity: before.get(each.identity, now) for each in calls}
        since = min(self._seen.values(), default=now)
        if since != self._since:
            self._end(now)
            self._since = since
        lasted = now - since
        if lasted < self._next_s:
            return
        # A function that makes many calls lasts long, and not its calls: the innermost call that does is meant.
        place = next(each.place for each in calls if now - self._seen[each.identity] >= _FIRST_S)
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
    calls = partial(calls_of_thread, threading.get_ident())
    parts.metrics.http.spawn(StallWatch(parts.config.worker_id, last_turn, calls, parts.blockers).run())


def calls_of_thread(thread_id: int) -> Sequence[Call]:
    """Return the calls that a thread is in while it processes records, innermost first; none if it does not.

    Those of millpond itself are left out, since they include loops over records, timers and rows. Without another call
    the thread is in a function without a frame, such as one in C, and its place is all that is known.
    """
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - the documented function for this
    frames: list[FrameType] = []
    while frame is not None:
        if isinstance(task := frame.f_locals.get("self"), StreamTask):
            return _calls(task, [*frames, frame])
        frames.append(frame)
        frame = frame.f_back
    return ()


def _calls(task: StreamTask, frames: Sequence[FrameType]) -> Sequence[Call]:
    """Return the calls of these frames, of which the last one is the task's."""
    message = task.context.message
    record = None if message is None else f"{message.topic()}-{message.partition()} offset {message.offset()}"
    calls: list[Call] = []
    node = code = None
    for each in reversed(frames[:-1]):  # inwards: a call without a node or a line has those of the next outer one
        node = _node_of(each) or node
        code = _code_of(each) or code
        if not is_millponds(each):
            calls.insert(0, Call(each, Place(str(task.id), node, record, code)))
    if calls:
        return calls
    place = Place(str(task.id), node, record, code)
    return [Call((frames[0], place), place)]


def _code_of(frame: FrameType) -> str | None:
    """Return the place of a call in the user's code; None if it is of a library."""
    if not is_the_users(frame):
        return None
    name = frame.f_code.co_name
    function = "" if name in ("<lambda>", "<module>") else f", in {name}()"
    return f"{PurePath(frame.f_code.co_filename).name}, line {frame.f_lineno}{function}"


def _node_of(frame: FrameType) -> str | None:
    """Return the name of the node whose function this is: it has the node, or the node's function for failures."""
    for name in ("node", "failed"):
        value = frame.f_locals.get(name)
        value = getattr(value, "__self__", value)
        if isinstance(value, NodeBinding):
            return value.name
    return None
