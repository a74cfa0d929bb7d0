"""A filter of repeated log messages: without brokers, Kafka clients log the same message ten times a second."""

from __future__ import annotations

import logging
import re
import time

__all__ = ("RepeatFilter",)

#: Used on purpose (docs/decisions/0010), so the client's warning at every start is no news.
_EXPECTED = "enable.gapless.guarantee is experimental"
_NUMBERS = re.compile(r"\d+")


class RepeatFilter(logging.Filter):
    """A filter that drops expected messages, and those that differ only in numbers from one of the last `seconds`."""

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record."""
        text = _NUMBERS.sub("#", record.getMessage())
        if _EXPECTED in text:
            return False
        now = time.monotonic()
        if now - self._passed.get(text, -self._seconds) < self._seconds:
            return False
        if len(self._passed) > 1_000:  # limits the memory, if many texts are different
            self._passed.clear()
        self._passed[text] = now
        return True
