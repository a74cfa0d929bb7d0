"""The requests of other threads to a worker, which outlive its recoveries and replacements."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import timedelta

from millpond.checks import kind_of
from millpond.errors import ConfigError

__all__ = ("CloseOptions", "Controls", "close_options", "seconds_of")


@dataclass(frozen=True, kw_only=True)
class CloseOptions:
    """The options of `Worker.close` (KIP-812)."""

    timeout: timedelta | None = None
    """How long `close` waits for the end of the worker; None waits as long as it takes."""
    leave_group: bool = True
    """Whether the coordinator assigns the worker's tasks to other workers at once. With False, the worker only commits,
    and the coordinator waits for the session timeout: for a worker that starts again soon with the same `worker.id`.
    Without a coordinator it makes no difference."""


@dataclass(eq=False)
class Controls:
    """The requests of other threads to a worker, and the condition on which they wait for it."""

    thread_id: int = 0
    """The thread of the worker's loop; 0 before it begins."""
    begun: bool = False
    """Whether the worker was started."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when the worker has to commit and end."""
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when the worker has ended."""
    changed: threading.Condition = field(default_factory=threading.Condition)
    """Notified after each change of the worker's state."""
    paused: bool = False
    """Whether the tasks process and restore nothing."""
    leave_group: bool = True
    """Whether the worker hands its tasks over when it ends."""


def close_options(given: CloseOptions | timedelta | None) -> CloseOptions:
    """Return the options of a call of `close`.

    Raises:
        ConfigError: the argument or its timeout has another type, or the timeout is negative.
    """
    if isinstance(given, timedelta):
        given = CloseOptions(timeout=given)
    if given is None:
        return CloseOptions()
    if not isinstance(given, CloseOptions):
        raise ConfigError(f"close() takes a timedelta or mp.CloseOptions(…), not {kind_of(given)}.")
    seconds_of("close()", given.timeout)
    return given


def seconds_of(what: str, timeout: timedelta | None) -> float | None:
    """Return a timeout in seconds; None for no timeout.

    Raises:
        ConfigError: it is not a timedelta, or negative.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta):
        raise ConfigError(
            f"{what} needs a timedelta as its timeout, such as timedelta(seconds=10), not {kind_of(timeout)}."
        )
    if timeout < timedelta():
        raise ConfigError(f"{what} was given the negative timeout {timeout}; give timedelta() to not wait at all.")
    return timeout.total_seconds()
