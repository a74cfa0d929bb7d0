"""What the Kafka clients log, said once: while brokers are away they would repeat themselves ten times a second."""

from __future__ import annotations

import logging
import re
import time

__all__ = ("Unrepeated",)

#: Chosen on purpose (docs/decisions/0010): nobody has to be warned at every start.
_EXPECTED = "enable.gapless.guarantee is experimental"
_NUMBERS = re.compile(r"\d+")


class Unrepeated(logging.Filter):
    """Lets a message pass unless it is expected, or the same one, numbers apart, passed within the last `seconds`."""

    def __init__(self, seconds: float = 30.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        text = _NUMBERS.sub("#", record.getMessage())
        if _EXPECTED in text:
            return False
        now = time.monotonic()
        if now - self._passed.get(text, -self._seconds) < self._seconds:
            return False
        if len(self._passed) > 1_000:  # texts that differ each time are not kept for ever
            self._passed.clear()
        self._passed[text] = now
        return True
