"""Logs dropped records: the first of a node at once, then at most one line per period, node and reason.

Nothing is done for a record that is not dropped. Reasons that lose nothing, or have log lines of their own, are only
counted. Records that an exception handler gave up on have one line per period and cause.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

from millpond.drops import Drop
from millpond.times import iso

__all__ = ("PERIOD_MS", "DropLog", "Failure", "LateForJoin", "LateWindow", "moment")

log: logging.Logger = logging.getLogger(__name__)

PERIOD_MS = 60_000
"""Time between two log lines about one node and reason, in milliseconds."""

#: Cause and cure by reason, after "dropped a record". Other reasons are only counted.
_WORDS = {
    Drop.NULL_KEY: (
        "without a key",
        "Without a key it cannot be grouped, joined or kept in a table: produce records with a key, or set one with "
        "select_key() on a stream",
    ),
    Drop.NULL_VALUE: (
        "without a value",
        "This operator skips records whose value is null: drop them with filter() before it, or read the topic with "
        "table() if they are deletions",
    ),
    Drop.NO_LOOKUP_KEY: (
        "for which the function of the join returned None",
        "Without a key there is no row to join: return a key, or use left_join() to keep such records",
    ),
    Drop.EXPIRED: (
        "older than the history of its versioned store",
        "Give the store a longer history_retention= to keep such versions",
    ),
    Drop.INVALID_TIMESTAMP: (
        "with a negative timestamp",
        "Producers set it, or the timestamp extractor of the source returned it: correct whichever does",
    ),
}


class LateWindow(NamedTuple):
    """A window that had closed when a record for it came. Times are in epoch milliseconds."""

    start: int
    end: int
    """The window's end."""
    closes: int
    """The stream time at which it closed: its end, plus the gap of sessions, plus grace."""
    stream_time: int


class LateForJoin(NamedTuple):
    """A record that came so late that results of a join of two streams may be missing."""

    late_ms: int
    """A grace that is longer by more than this keeps such records, and their partners."""


class Failure(NamedTuple):
    """An error after which an exception handler gave up on a record. Equal ones share a log line."""

    verb: str
    """What failed: `decode`, `process` or `produce`."""
    error: str
    """The error's class, and the place in the user's code."""
    topics: tuple[str, ...]
    """The topics to which the record was sent as a dead letter; empty if it is nowhere."""
    of_row: bool = False
    """Whether the cause is a row of a store, and not the record."""
    waited: str = ""
    """What is dropped, if it is not the record: what waited in the store, such as a `final result`."""


class _Drops:
    """The drops of one node for one reason since the last log line."""

    __slots__ = ("cause", "count", "due_ms", "place", "since_ms", "window")

    def __init__(self) -> None:
        self.cause = ""
        self.count = 0
        self.due_ms = 0
        self.since_ms = 0
        self.place = ""
        self.window: LateWindow | LateForJoin | None = None


class DropLog:
    """The log lines of one worker about dropped records.

    Attributes:
        pending: number of dropped records that no line has told of yet.
    """

    __slots__ = ("_drops", "_warned", "pending")

    def __init__(self) -> None:
        self._drops: dict[tuple[str, Drop | Failure], _Drops] = {}
        self._warned: set[Hashable] = set()
        self.pending: int = 0

    def note(self, node: str, reason: Drop, task: Any, window: LateWindow | LateForJoin | None = None) -> None:
        """Note that a node dropped the current record of a task; log it if the last line is a period ago.

        The line has the place of the latest record that is late for a window, and of the first one in other cases.
        """
        if window is None and reason not in _WORDS:
            return
        drops = self._drops.get((node, reason))
        if drops is None:
            drops = self._drops[node, reason] = _Drops()
        worst = window is not None and (drops.window is None or _lateness(window) > _lateness(drops.window))
        if not drops.count or (worst and not isinstance(window, LateForJoin)):
            drops.place = (
                f"{task.topic}-{task.partition} offset {task.offset}" if task.topic else f"task {task.task_id}"
            )
        if not drops.count or worst:
            drops.window = window
        drops.count += 1
        self.pending += 1
        now_ms = task.now_ms()
        if now_ms >= drops.due_ms:
            self._report(node, reason, drops, now_ms)

    def note_failed(self, node: str, failure: Failure, cause: str, place: str, now_ms: int) -> None:
        """Note that an exception handler gave up on a record; log it if the last line is a period ago.

        Args:
            node: the node in which the error was raised.
            failure: the error.
            cause: its message. The line has that of the first record.
            place: topic, partition and offset of the record, or its task.
            now_ms: wall-clock time, epoch ms.
        """
        drops = self._drops.get((node, failure))
        if drops is None:
            drops = self._drops[node, failure] = _Drops()
        if not drops.count:
            drops.place, drops.cause = place, cause
        drops.count += 1
        self.pending += 1
        if now_ms >= drops.due_ms:
            self._report(node, failure, drops, now_ms)

    def note_expired(self, told: dict[str, tuple[int, int]], stores: Iterable[Any], now_ms: int) -> None:
        """Log stores that did not keep updates since the last line about them, because their windows had expired.

        Args:
            told: of one task: the number of updates that lines told of, and the time of the next line, by store.
            stores: the stores of the task.
            now_ms: wall-clock time, epoch ms.
        """
        for store in stores:
            expired = getattr(store, "expired_puts", 0)
            retention_ms = getattr(store, "retention_ms", None)
            if not expired or not isinstance(retention_ms, int) or getattr(store, "on_not_kept", None) is not None:
                continue  # a join of two streams tells of its records itself
            before, due_ms = told.get(store.name, (0, 0))
            if expired > before and now_ms >= due_ms:
                told[store.name] = expired, now_ms + PERIOD_MS
                log.warning(
                    "store '%s' dropped %d update%s of windows that end more than its retention of %s before the "
                    "latest one. Give it a longer retention= to keep them.",
                    store.name, expired - before, "" if expired - before == 1 else "s", _lasting(retention_ms),
                )  # fmt: skip

    def warn_once(self, what: Hashable, text: str, *values: object) -> None:
        """Log a warning about records, if it was not logged before for `what`."""
        if what not in self._warned:
            self._warned.add(what)
            log.warning(text, *values)

    def report(self, now_ms: int | None = None) -> None:
        """Log the drops of which no line has told: those whose period has ended, or all of them without a time."""
        for (node, reason), drops in self._drops.items():
            if drops.count and (now_ms is None or now_ms >= drops.due_ms):
                self._report(node, reason, drops, drops.due_ms if now_ms is None else now_ms)

    def _report(self, node: str, reason: Drop | Failure, drops: _Drops, now_ms: int) -> None:
        first = not drops.since_ms
        several = "" if first else f" in the last {_lasting(max(now_ms - drops.since_ms, PERIOD_MS))}"
        if isinstance(reason, Failure):
            log.warning("%s", _failed(node, drops, reason, several))
        elif isinstance(drops.window, LateForJoin):
            log.warning("%s", _late_for_join(node, drops, drops.window, several))
        elif drops.window is not None:
            log.warning("%s", _late(node, drops, drops.window, several))
        else:
            what, cure = _WORDS[reason]
            log.warning("node %r dropped %s %s%s (%s). %s.", node, _records(drops), what, several, drops.place, cure)
        drops.since_ms, drops.due_ms = now_ms, now_ms + PERIOD_MS
        self.pending -= drops.count
        drops.count = 0
        drops.window = None


def _failed(node: str, drops: _Drops, failure: Failure, several: str) -> str:
    one = drops.count == 1
    if failure.topics:
        topics = " and ".join(f"'{topic}'" for topic in failure.topics)
        fate = f"sent to {topics}" if one else f"all are sent to {topics}"
    elif failure.waited:
        fate = f"{'it is' if one else 'they are'} dropped, and input records are not"
    elif failure.of_row:
        which_are = "the input record is" if one else "the input records are"
        fate = f"{which_are} dropped all the same ('errors.dead.letter.queue.topic.name' keeps a copy)"
    else:
        fate = f"{'it is' if one else 'they are'} dropped ('errors.dead.letter.queue.topic.name' keeps a copy)"
    what = (f"a {failure.waited}" if one else f"{drops.count} {failure.waited}s") if failure.waited else _records(drops)
    place = f" at {drops.place}" if one else ""
    which = "" if one else f"the first, at {drops.place}: "
    return (
        f"node '{node}' could not {failure.verb} {what}{place}{several}: {which}"
        f"{drops.cause.removesuffix('.')}; {fate}."
    )


def _late_for_join(join: str, drops: _Drops, window: LateForJoin, several: str) -> str:
    it = "it" if drops.count == 1 else "they"
    backlog = (
        " A backlog that goes through repartition topics is out of order: reset and replay it with such a grace, or "
        "read topics that have the join's key already."
        if "-repartition-" in drops.place
        else ""
    )
    return (
        f"join '{join}': results of {_records(drops)} may be missing{several}, since {it} came after the join's "
        f"windows and grace had passed. The first is {drops.place}. A grace of the join's windows that is longer by "
        f"more than {_lasting(window.late_ms)} keeps such records.{backlog}"
    )


def _late(node: str, drops: _Drops, window: LateWindow, several: str) -> str:
    what, which = f"a late record at {drops.place}", "its window"
    if drops.count > 1:  # not records: one that is late for several windows counts for each of them
        what, which = (
            f"late records for {drops.count} closed windows",
            f"the window of the latest one, at {drops.place},",
        )
    missing = _lasting(window.stream_time - window.closes)
    closed = f"has no grace. A grace= of more than {missing} keeps such records"
    if window.closes != window.end:
        open_for = _lasting(window.closes - window.end)
        closed = f"closed {open_for} after its end. A grace= that is longer by more than {missing} keeps such records"
    return (
        f"node '{node}' dropped {what}{several}: {which} from {moment(window.start)} to "
        f"{moment(window.end)} ended {_lasting(_after_end(window))} before stream time, and {closed}."
    )


def _records(drops: _Drops) -> str:
    return "a record" if drops.count == 1 else f"{drops.count} records"


def _lateness(window: LateWindow | LateForJoin) -> int:
    return window.late_ms if isinstance(window, LateForJoin) else _after_end(window)


def _after_end(window: LateWindow) -> int:
    return window.stream_time - window.end


def _lasting(duration_ms: int) -> str:
    """Return a duration as text, exact to the millisecond: `37.25 s`, `1 min 30 s`, `2 d 3 h`."""
    rest_s, millis = divmod(duration_ms, 1000)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        count, rest_s = divmod(rest_s, size)
        if count:
            parts.append(f"{count} {unit}")
    if rest_s or millis or not parts:
        parts.append(f"{rest_s}.{millis:03d}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def moment(epoch_ms: int) -> str:
    """Return a time in epoch milliseconds as text, in UTC."""
    return iso(epoch_ms).removesuffix("Z").removesuffix(".000") + "Z"
