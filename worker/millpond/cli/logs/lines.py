"""Lines of logs: with the time that Kubernetes notes for each, merged, and printed behind the worker's name."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import click

from millpond.cli.cluster.printable import printable_line

__all__ = ("Line", "Printer", "merged", "parsed")

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "bright_cyan", "bright_green", "bright_magenta")


class Line(NamedTuple):
    """A line of a log."""

    time: str
    """RFC 3339 with nanoseconds, in UTC, so that text sorts by time; "" if unknown."""
    worker: str
    text: str


def parsed(worker: str, raw: bytes) -> Line:
    """Return a line of the API with `timestamps`."""
    time, _, text = raw.decode(errors="replace").partition(" ")
    return Line(_sortable(time), worker, text)


def _sortable(time: str) -> str:
    """Return a time with nine digits of the second: Kubernetes leaves out zeros at the end."""
    whole, dot, fraction = time.removesuffix("Z").partition(".")
    return f"{whole}.{fraction.ljust(9, '0')}Z" if dot else f"{whole}.000000000Z"


def merged(logs: Sequence[Iterable[Line]]) -> Iterator[Line]:
    """Yield the lines of several logs by time. The lines of each log stay in their order."""
    return heapq.merge(*logs, key=lambda line: line.time)


class Printer:
    """Prints lines behind the names of workers, coloured on terminals.

    Args:
        workers: the workers known at the beginning, for the width of the names.
        timestamps: whether to print the time that Kubernetes noted.
    """

    def __init__(self, workers: Iterable[str], *, timestamps: bool) -> None:
        self._colours: dict[str, str] = {}
        self._width = 0
        self._timestamps = timestamps
        for each in workers:
            self._prefix(each)

    def line(self, line: Line) -> None:
        """Print a line."""
        time = f"{line.time} " if self._timestamps and line.time else ""
        click.echo(f"{self._prefix(line.worker)} {time}{printable_line(line.text)}")

    def note(self, worker: str, text: str) -> None:
        """Print a remark about a worker on standard error."""
        click.echo(f"{self._prefix(worker)} {click.style(text, dim=True)}", err=True)

    def _prefix(self, worker: str) -> str:
        colour = self._colours.setdefault(worker, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._width = max(self._width, len(worker))
        return click.style(f"{worker:<{self._width}} |", fg=colour)
