"""Checks in a thread whether brokers answer this worker (docs/decisions/0025-workers-without-brokers.md).

Without brokers, polls are empty, and without a commit, nothing fails. So a thread sends a request every
few seconds. Its result goes to the coordinator, to `/readyz` and to the metrics.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka.admin import AdminClient

from millpond.errors import BrokerError
from millpond.protocol import Brokers
from millpond.runtime.blockers import Blockers

from .clients import log as client_log
from .reconnect import COMMON_TOPIC, answers

__all__ = ("BrokerContact", "make_probe")

log: logging.Logger = logging.getLogger(__name__)

#: Number of checks without an answer until brokers count as lost.
_CHECKS = 10
_MAX_PERIOD_S = 3.0
#: Share of that time that one request may take; a check sends up to two, with two clients.
_ANSWER_SHARE = 1 / 6
#: Share of that time for which a worker whose brokers answer again waits before it reports so. By then all other
#: workers have noticed, too: no task moves because one worker is earlier than the others.
_SETTLED_SHARE = 0.5
_REPORTED_AFTER_S = 10.0
_BLOCKER = "brokers of a running worker"


class BrokerContact:
    """The check of the brokers in a thread, from `start` to `close`.

    Args:
        probe: returns whether a broker answers within a number of seconds.
        lost_after_s: the time without an answer after which brokers count as lost, in seconds.
        blockers: the worker's blockers, to which unreachable brokers are added.
        servers: the brokers' addresses, for messages.
        now: returns the time of a clock, in seconds.
    """

    def __init__(
        self,
        probe: Callable[[float], bool],
        lost_after_s: float,
        blockers: Blockers,
        servers: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._probe = probe
        self._lost_after_s = lost_after_s
        self._blockers = blockers
        self._servers = servers
        self._now = now
        self._period_s = min(lost_after_s / _CHECKS, _MAX_PERIOD_S)
        self._answer_s = lost_after_s * _ANSWER_SHARE
        self._answering_since: float | None = now()
        self._silent_since = now()
        self._logged = False
        self._closed = threading.Event()

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="millpond-brokers", daemon=True).start()

    def close(self) -> None:
        """Stop the thread, without waiting for it."""
        self._closed.set()

    @property
    def silent_s(self) -> float:
        """The time for which no broker has answered, in seconds; 0 while brokers answer."""
        return 0.0 if self._answering_since is not None else self._now() - self._silent_since

    @property
    def lost(self) -> bool:
        """Whether no broker has answered for `lost_after_s`."""
        return self.silent_s >= self._lost_after_s

    @property
    def brokers(self) -> Brokers:
        """The state of the brokers as reported to the coordinator."""
        since = self._answering_since
        if since is None:
            return Brokers.LOST if self.lost else Brokers.SILENT
        settled = self._now() - since >= self._lost_after_s * _SETTLED_SHARE
        return Brokers.ANSWERING if settled else Brokers.SILENT

    def check(self) -> None:
        """Check the brokers once."""
        requested_at = self._now()
        if self._probe(self._answer_s):
            if self._answering_since is None:
                self._answering_since = self._now()
                self._blockers.remove(_BLOCKER)
                if self._logged:
                    log.info("brokers at %s: answering again", self._servers)
                self._logged = False
            return
        if self._answering_since is not None:
            # At most the time of a check: if the process was suspended meanwhile, the brokers are not lost yet.
            self._silent_since = max(requested_at, self._now() - 2 * self._answer_s)
            self._answering_since = None
            self._blockers.add(_BLOCKER, self._error(), min(self._lost_after_s, _REPORTED_AFTER_S))
        if self.lost and not self._logged:
            self._logged = True
            log.warning("%s", self._error())

    def _error(self) -> BrokerError:
        # Always the same sentence: a changed one would look like news.
        return BrokerError(
            f"no broker at '{self._servers}' answers this worker, so its tasks move to workers that reach the brokers. "
            f"Check the brokers, and the network between them and this worker."
        )

    def _run(self) -> None:
        while not self._closed.wait(self._period_s):
            try:
                self.check()
            except Exception:
                log.exception("brokers at %s: cannot check whether they answer; checking again", self._servers)


def make_probe(settings: dict[str, Any]) -> Callable[[float], bool]:
    """Return a function that returns whether a broker answers within a number of seconds.

    The function keeps a connection. If that gives no answer, it tries a new client, since a client may not reconnect to
    brokers that were down (see `reconnect.py`).

    Args:
        settings: properties of an admin client.
    """
    client: AdminClient | None = None

    def probe(timeout_s: float) -> bool:
        nonlocal client
        if client is not None and answers(client, COMMON_TOPIC, timeout_s):
            return True
        client = AdminClient(dict(settings), logger=client_log)
        return answers(client, COMMON_TOPIC, timeout_s)

    return probe
