"""How a broker's process has ended by itself: by its exit status and the end of its log."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

__all__ = ("CAUSE", "end_of_kafka")

CAUSE = re.compile(r"(Caused by: |Exception in thread \S+ )?[\w.$]+(Exception|Error)\b|\S+ \S+ \[[^]]*\] ERROR ")
"""The first line of an exception or of its cause, or a line logged as an error; not a stack frame, not a quoting INFO.
"""
_NO_SPACE = re.compile(r"no space left on device|disk full", re.IGNORECASE)
_NO_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError: .*")
_LOGGED = re.compile(r"\S+ \S+ \[[^]]*\] ERROR ")


def end_of_kafka(status: int, log: Sequence[str], directory: Path) -> str:
    """Return how Kafka has ended and why, as a sentence without its full stop.

    Args:
        status: the exit status of its process, negative for a signal.
        log: the last lines of its log.
        directory: its data directory.
    """
    killed = status < 0
    how = f"Kafka was killed by {_signal(-status)}" if killed else f"Kafka ended with status {status}"
    if any(_NO_SPACE.search(line) for line in log):
        return f"{how}: no space is left on the device of {directory}; free some before the next start"
    if status == -signal.SIGKILL:
        # Nothing that Kafka logs is the reason of a SIGKILL.
        return f"{how}; if nobody sent it, the machine or the container had no memory left"
    for line in reversed(log):
        if (found := _NO_MEMORY.search(line)) is not None:
            return f"{how}: {found[0].strip()}"
    causes = [_LOGGED.sub("", line).strip() for line in log if CAUSE.match(line)]
    return f"{how}: {causes[-1].removesuffix('.')}" if causes and status not in _BY_REQUEST else how


#: Somebody asked it to end, so no line of the log is the reason: 143 is Java's status after SIGTERM, 130 after SIGINT.
_BY_REQUEST = (0, 143, 130, -signal.SIGTERM, -signal.SIGINT)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
