"""The termination message: why a command failed, as one line of JSON in a file that Kubernetes reads."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from pathlib import Path

__all__ = ("VARIABLE", "unexpected_error", "write_termination_message")

VARIABLE = "MILLPOND_TERMINATION_LOG"
"""The environment variable that names the file, which Kubernetes reads when a container has ended."""

_MAX_BYTES = 4096
"""Kubernetes keeps at most so much."""
_CUT = "…"


def write_termination_message(reason: str, message: str) -> None:
    """Write the termination message if the variable names a file. A file that cannot be written is ignored.

    Args:
        reason: the kind of failure: the class name of the error.
        message: cause and cure.
    """
    path = os.environ.get(VARIABLE)
    if path:
        with contextlib.suppress(OSError):
            Path(path).write_bytes(_line(reason, message))


def unexpected_error(error: BaseException) -> str:
    """Return the message for an error that is not one of millpond's own.

    The error's text is only in the log, since it may contain data of the application.
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    return f"Unexpected {type(error).__name__}{where}: see the traceback in the log."


def _line(reason: str, message: str) -> bytes:
    while True:
        line = json.dumps({"reason": reason, "message": message}, ensure_ascii=False).encode(errors="replace") + b"\n"
        beyond = len(line) - _MAX_BYTES
        if beyond <= 0:
            return line
        # A character has between one byte and, escaped, six: cutting by a sixth never cuts too much.
        message = message.removesuffix(_CUT)[: -max(1, beyond // 6)] + _CUT
