"""Marks the time in which a command loads an application: no worker may start then."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millpond.errors import WorkerStateError

__all__ = ("StartedWhileLoading", "check_not_loading", "loading")

_loads = 0


class StartedWhileLoading(WorkerStateError):
    """The application's code starts a worker while a command of `millpond` loads it."""


@contextmanager
def loading() -> Iterator[None]:
    """Refuse that a worker starts in this process within the block, in any thread."""
    global _loads  # noqa: PLW0603 - modules are imported once for the process, too
    _loads += 1
    try:
        yield
    finally:
        _loads -= 1


def check_not_loading() -> None:
    """Check that no command loads an application now.

    Raises:
        StartedWhileLoading: one does.
    """
    if _loads:
        raise StartedWhileLoading(
            "a worker is started while a command of millpond loads the application: start it under "
            "`if __name__ == '__main__':`."
        )
