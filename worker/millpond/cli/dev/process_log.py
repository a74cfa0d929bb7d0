"""The log file of a worker or the coordinator, read as it grows: address, last error, and warnings to tell."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path
from typing import NamedTuple

from millpond.user_code import is_library

__all__ = ("ProcessLog",)

_LAST_LINES = 15
_RECENT_S = 60.0
_TEXT = re.compile(r"\d{4}-\d\d-\d\d[T ]\S+ (?P<level>[A-Z]+) (?P<logger>\S+) (?P<message>.*)")
_ERRORS = ("ERROR", "CRITICAL")
_LAST_WORDS = re.compile(r"(?:millpond: |Fatal Python error: )(?P<error>.*)")
"""The last line of a command of millpond, and of a Python that cannot go on."""
_TRACEBACK = "Traceback (most recent call last):"
_CALL = re.compile(r'\s+File "(?P<file>.+)", line (?P<line>\d+)')
# The lines of `runtime.processing.drop_log`: the operator, and what it did with records.
_DROPPED = re.compile(
    r"(?P<text>(?:node|join) '(?P<name>[^']*)'"
    r"(?P<what> dropped (?:a|\d+) late record| dropped (?:a|\d+) records? [^(]*?(?= in the last| \()| could not \w+"
    r"|: results of (?:a|\d+) record).*)"
)
_METRICS = re.compile(r"metrics on (http://\S+)")
_TO_ACT_ON = re.compile(r"millpond\.runtime\.(?:topics\.|processing\.(?:partitioner_check|drop_log)$|worker\.pacing$)")
"""The loggers whose warnings ask for a change of the application or of its topics. Others tell of what passes."""
_HEALED = re.compile(r"millpond\.runtime\.(?:kafka\.|restoring\.|tasks\.task_stores$|worker\.assembly$)")
"""The loggers whose errors are over when the worker runs: of Kafka's clients, and of state that is restored."""
_RUNS = re.compile(r"worker \S+: \w+ -> running")


class _Entry(NamedTuple):
    """A line of a log: of millpond's own loggers, or any other text, which has no level."""

    message: str
    level: str = ""
    logger: str = ""


class ProcessLog:
    """A child's log, read as it grows. What the file had before belongs to earlier workers, and is not read.

    Attributes:
        path: the file.
        metrics: URL of the latest process's metrics; empty while it is not known.
        error: the latest process's last error; empty without one, or if the worker has healed it and runs.
        drops: lines about dropped records that nobody has taken, the first one for each operator and reason.
        warnings: other warnings that ask for a change of the application, and that nobody has taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics: str = ""
        self.error: str = ""
        self.drops: list[str] = []
        self.warnings: list[str] = []
        self._told_drops: set[tuple[str, str]] = set()
        self._position = self._begin = path.stat().st_size if path.exists() else 0
        self._partial_line = ""
        self._error_at = 0.0
        self._error_heals = False
        self._traceback: str | None = None  # the last place in the application; None outside of a traceback

    def new_process(self) -> None:
        """Forget the last process: the next lines of the log are from a new one."""
        self.read()
        self.metrics = self.error = self._partial_line = ""
        self._traceback = None
        self._begin = self._position

    def read(self) -> None:
        """Read the lines that were appended since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                new = file.read()
        except FileNotFoundError:
            return
        self._position += len(new)
        *lines, self._partial_line = (self._partial_line + new.decode(errors="replace")).split("\n")
        for line in lines:
            self._note(_entry(line))

    def _note(self, entry: _Entry) -> None:
        error = self._error_in(entry)
        if found := _METRICS.search(entry.message):
            self.metrics = found[1]
        elif error:
            self.error, self._error_at = error, time.monotonic()
            self._error_heals = _HEALED.match(entry.logger) is not None
        elif self._error_heals and _RUNS.fullmatch(entry.message):
            self.error, self._error_heals = "", False
        elif found := _DROPPED.search(entry.message):
            about = found["name"], re.sub(r" (a|\d+) records?", "", found["what"])
            if about not in self._told_drops:
                self._told_drops.add(about)
                self.drops.append(found["text"])
        elif entry.level == "WARNING" and _TO_ACT_ON.match(entry.logger):
            self.warnings.append(entry.message)

    def _error_in(self, entry: _Entry) -> str:
        """Return the error of a line: a logged one, the last words of a process, or the end of a traceback."""
        if entry.level:
            self._traceback = None
            return entry.message if entry.level in _ERRORS else ""
        if found := _LAST_WORDS.match(entry.message):
            return found["error"]
        if entry.message == _TRACEBACK:
            self._traceback = ""
        elif self._traceback is not None:
            if not entry.message.startswith(" "):
                place, self._traceback = self._traceback, None
                return entry.message + place if entry.message else ""
            if (call := _CALL.match(entry.message)) and not is_library(call["file"]):
                self._traceback = f" ({Path(call['file']).name}, line {call['line']})"
        return ""

    @property
    def recent_error(self) -> str:
        """The last error; empty if it is older than a minute."""
        return self.error if time.monotonic() - self._error_at < _RECENT_S else ""

    def tail(self) -> str:
        """Return the last lines of the latest process's log."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self._begin)
            text = file.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-_LAST_LINES:])


def _entry(line: str) -> _Entry:
    """Return a line of a log; `log.format` may be text or json."""
    if line.startswith("{"):
        with contextlib.suppress(ValueError):
            fields = json.loads(line)
            return _Entry(*(str(fields.get(key, "")) for key in ("message", "level", "logger")))
    if (found := _TEXT.fullmatch(line)) is not None:
        return _Entry(found["message"], found["level"], found["logger"])
    return _Entry(line)
