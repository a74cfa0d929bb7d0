"""Why a command failed, in one line of JSON for whoever started it."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from pathlib import Path

__all__ = ("VARIABLE", "last_words", "unforeseen")

VARIABLE = "MILLPOND_TERMINATION_LOG"
"""Names the file. Kubernetes reads such a file when a container has ended."""

#: What Kubernetes keeps of it.
_MOST_BYTES = 4096
_CUT = "…"


def last_words(reason: str, message: str) -> None:
    """Write them, if anybody wants them. That it fails changes nothing about the end.

    Args:
        reason: the kind of failure, as the class of its error is called.
        message: one sentence with cause and cure.
    """
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError):
            Path(path).write_bytes(_line(reason, message))


def unforeseen(error: BaseException) -> str:
    """What is said of an error that is not one of millpond's own.

    Its text stays in the log: it may have anything in it, data of the application for one.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}, which nothing foresaw: the log has the traceback."


def _line(reason: str, message: str) -> bytes:
    while True:
        line = json.dumps({"reason": reason, "message": message}, ensure_ascii=False).encode(errors="replace") + b"\n"
        beyond = len(line) - _MOST_BYTES
        if beyond <= 0:
            return line
        # A character has one byte at least, and may have six when it is escaped: never cut too much at once.
        message = message.removesuffix(_CUT)[: -max(1, beyond // 6)] + _CUT
