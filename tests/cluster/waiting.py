"""Waiting, in tests that run either in real time or in the time of a simulation."""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millpond.protocol import clock

__all__ = ("PATIENCE_S", "POLL_S", "TIME", "Time", "sleep", "together", "unchanged", "wait_for")

#: Machines may be busy, sessions of dead workers have to end, and the garbage collector may run every half minute.
PATIENCE_S = 90.0
POLL_S = 0.2
#: What has not changed for so long has come to rest: controllers pause between two steps.
_REST_S = 3.0
T = TypeVar("T")


class Time:
    """How a test lets time pass; real time passes by itself.

    Attributes:
        parallel: whether `together` really runs things at the same time, and so ends sooner.
    """

    parallel = True

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def together(self, acts: Sequence[Callable[[], object]]) -> list[BaseException]:
        """Do several things at the same time.

        Returns:
            The errors that they raised.
        """
        with ThreadPoolExecutor(len(acts)) as threads:
            done = [threads.submit(act) for act in acts]
        return [error for each in done if (error := each.exception()) is not None]


TIME: contextvars.ContextVar[Time] = contextvars.ContextVar("time", default=Time())  # noqa: B039 - it has no state
"""The time that tests run on; a simulation puts its own here."""


def sleep(seconds: float) -> None:
    """Let time pass."""
    TIME.get().sleep(seconds)


def together(acts: Sequence[Callable[[], object]], what: str) -> None:
    """Do several things at the same time, each of which waits for something.

    Raises:
        ExceptionGroup: some of them failed.
    """
    errors = TIME.get().together(acts)
    if errors:
        raise BaseExceptionGroup(what, errors)


def wait_for(
    condition: Callable[[], object],
    what: str,
    seconds: float = PATIENCE_S,
    otherwise: Callable[[], object] = lambda: "",
    poll_s: float = POLL_S,
) -> None:
    """Wait until a condition holds that needs requests.

    Args:
        condition: the condition.
        what: its description.
        seconds: how long to wait.
        otherwise: returns the state for the message.
        poll_s: how often to check it; short-lived conditions need shorter intervals.

    Raises:
        AssertionError: it does not hold in time.
    """
    deadline = clock.monotonic() + seconds
    while not condition():
        assert clock.monotonic() < deadline, f"waited {seconds} s in vain: {what}\n{otherwise()}"
        sleep(poll_s)


def unchanged(look: Callable[[], T], what: str) -> T:
    """Wait until a value has not changed for a while.

    Args:
        look: returns the value.
        what: its description.

    Returns:
        The value.

    Raises:
        AssertionError: it keeps changing.
    """
    found, since, deadline = look(), clock.monotonic(), clock.monotonic() + PATIENCE_S
    while clock.monotonic() - since < _REST_S:
        assert clock.monotonic() < deadline, f"{what} does not come to rest"
        sleep(POLL_S)
        if (now := look()) != found:
            found, since = now, clock.monotonic()
    return found
