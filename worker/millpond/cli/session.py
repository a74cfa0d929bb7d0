"""The context of one call of the command line: verbosity, output, logs."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.logging import RichHandler

from millpond.cli.cluster.printable import printable
from millpond.json_logs import log_as_json, logs_json

__all__ = ("Session",)


_UNLIMITED = 100_000
"""The columns of a pipe or a file."""


class _PlainFormatter(logging.Formatter):
    """Replaces characters that control a terminal: exceptions of user code may quote a record, which anybody wrote."""

    def format(self, record: logging.LogRecord) -> str:
        return str(printable(super().format(record)))


def _console(*, stderr: bool) -> Console:
    """Return a console. Without a terminal, lines are not wrapped, since programs read them, unless COLUMNS is set."""
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    return console


@dataclass
class Session:
    """The context of one call, passed to every command as click's context object."""

    verbose: bool = False
    """Whether debug logs and tracebacks of expected errors are shown."""

    out: Console = field(default_factory=lambda: _console(stderr=False))
    """Standard output: results."""

    err: Console = field(default_factory=lambda: _console(stderr=True))
    """Standard error: logs, progress, errors."""

    @property
    def live(self) -> bool:
        """Whether standard error is a terminal that can redraw lines, and logs are not JSON."""
        return self.err.is_terminal and not self.err.is_dumb_terminal and not logs_json()

    def log_to_stderr(self) -> None:
        """Log to standard error: above the live display on a terminal, as plain lines with UTC times elsewhere."""
        handler: logging.Handler
        if self.live:
            handler = RichHandler(console=self.err, show_path=False, markup=False, rich_tracebacks=False)
            handler.setFormatter(_PlainFormatter("%(message)s", datefmt="%H:%M:%S"))
        else:
            handler = logging.StreamHandler(sys.stderr)
            formatter = _PlainFormatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s")
            formatter.datefmt = "%Y-%m-%dT%H:%M:%S"
            formatter.converter = time.gmtime
            handler.setFormatter(formatter)
        root = logging.getLogger()
        root.handlers[:] = [handler]
        root.setLevel(logging.WARNING)
        logging.getLogger("millpond").setLevel(logging.DEBUG if self.verbose else logging.INFO)

    def log_as(self, log_format: str, application_id: str, worker_id: str) -> None:
        """Log as `log.format` says, once the configuration is known.

        Args:
            log_format: `text` or `json`.
            application_id: the application's id, for lines of JSON.
            worker_id: the worker's id, for lines of JSON.
        """
        if log_format == "json":
            log_as_json(application_id=application_id, worker=worker_id)
