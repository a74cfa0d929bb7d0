"""A filter of repeated log messages: without brokers, Kafka clients log the same message ten times a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

__all__ = ("RepeatFilter",)

#: Used on purpose (docs/decisions/0010), so the client's warning at every start is no news.
_EXPECTED = "enable.gapless.guarantee is experimental"
_NUMBERS = re.compile(r"\d+")
#: A request of a new producer that the client repeats. Shortly after the start of a broker it is loading the state of
#: transactions, and after a crash it ends an open transaction; both take less than a second. A reason that the client
#: does not retry has no such end of the line, and is shown at once.
_RETRIED = re.compile(r"Failed to acquire \w+ PID from broker \S+: (?P<reason>.*): retrying")
#: A producer is fenced after a pause, as by SIGSTOP, or at a start while others take over tasks of an earlier process.
#: The worker goes on by itself, so what the client calls an error, and then fatal, is no failure.
_FENCED = re.compile(
    r"(?:FATAL|TXNERR|ADDOFFSETS|ADDPARTS) .*"
    r"(?:fenced by a newer instance|operation with an old epoch|newer producer with the same transactionalId)"
)
_LASTS_S = 5.0
_FENCED_WORDS = (
    "producer: fenced, since another worker has taken tasks of this one over, or uses its transactional id: the broker "
    "commits nothing more of it"
)
#: The longest time between two lines of the same wait, in seconds.
_GAP_S = 3.0


class RepeatFilter(logging.Filter):
    """A filter that drops expected messages, and those that differ only in numbers from one of the last `seconds`.

    Retries of a new producer are shown in other words, and only if they last. That a producer is fenced is a warning.

    Args:
        seconds: see above.
        now: returns the time of a clock, in seconds.
    """

    def __init__(self, seconds: float = 30.0, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._now = now
        self._passed: dict[str, float] = {}
        self._retried_since = self._retried_last = -_GAP_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        if _FENCED.search(record.getMessage()):
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.msg, record.args = _FENCED_WORDS, ()
        text = _NUMBERS.sub("#", record.getMessage())
        if _EXPECTED in text:
            return False
        now = self._now()
        if (retried := _RETRIED.search(record.getMessage())) is not None:
            if not self._lasts(now):
                return False
            record.msg = (
                "producer: the broker has not given it an id for %.0f s (%s); retrying. It is loading its state, or is "
                "ending an open transaction of an earlier process"
            )
            record.args = (now - self._retried_since, retried["reason"])
        if now - self._passed.get(text, -self._seconds) < self._seconds:
            return False
        if len(self._passed) > 1_000:  # limits the memory, if many texts are different
            self._passed.clear()
        self._passed[text] = now
        return True

    def _lasts(self, now: float) -> bool:
        if now - self._retried_last > _GAP_S:
            self._retried_since = now
        self._retried_last = now
        return now - self._retried_since >= _LASTS_S
