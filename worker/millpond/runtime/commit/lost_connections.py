"""Notices that a client has lost a connection, from its log: librdkafka tells the end of a connection nowhere else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import timedelta

from millpond.backoff import Backoff

__all__ = ("LostConnections", "Patience")

#: librdkafka's name for messages about connections that failed or were closed.
_FAILED = "FAIL"
#: A connection without a request for so long may end without a message, in seconds.
_QUIET_S = 60.0
#: How long a call may connect after that: through a slow network, with TLS.
_CONNECTING_S = 2.0
_PATIENCE = Backoff(timedelta(seconds=1), timedelta(minutes=1))


class LostConnections:
    """The logger of one client, which notes lost connections and passes all messages on.

    The client calls it while it is polled, with the arguments of `logging.Logger.log`: the level, a format, and the
    kind of the message, the client's name and the text.
    """

    def __init__(self, logger: logging.Logger, now: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._now = now
        self._answered = now()
        self._lost: float | None = None

    def log(self, level: int, message: str, *args: object) -> None:
        """Log a message of the client."""
        if args and args[0] == _FAILED and self._lost is None:
            self._lost = self._now()
        self._logger.log(level, message, *args)

    def answered(self) -> None:
        """Note that brokers have answered: connections that were lost before are there again, or are not needed."""
        self._lost, self._answered = None, self._now()

    def waits_since(self, began: float) -> float | None:
        """Return since when a call may wait for a lost connection; None if no connection is lost.

        Args:
            began: the start of the call, by the clock.
        """
        if self._lost is not None:
            return max(began, self._lost)
        return began + _CONNECTING_S if began - self._answered >= _QUIET_S else None


class Patience:
    """How long a call of a producer may wait after a lost connection until it counts as stuck.

    It is doubled for each producer after one that committed nothing: where all calls are slow, the worker goes on.
    """

    def __init__(self) -> None:
        self._commits = -1
        self._producers = 0

    def next_s(self, commits: int) -> float:
        """Return it for the next producer, in seconds; `commits` is the number of commits so far."""
        self._producers = self._producers + 1 if commits == self._commits else 1
        self._commits = commits
        return _PATIENCE.wait_s(self._producers)
