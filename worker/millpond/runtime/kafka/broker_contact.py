"""Finds out whether brokers answer this worker, whatever its loop does (docs/decisions/0025-workers-without-brokers.md).

A worker without brokers hears nothing: its polls are empty, and where nothing has to be committed, nothing fails. So a thread asks
a broker every few seconds. What it finds goes to the coordinator, to `/readyz` and to the metrics.
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

__all__ = ("BrokerContact", "asking")

log = logging.getLogger(__name__)

#: Asked so many times until brokers count as lost.
_QUESTIONS = 10
_LONGEST_PERIOD_S = 3.0
#: A question may take such a share of the time until then; it is put to two clients, one after the other.
_ANSWER_SHARE = 1 / 6
#: Every worker notices within one question that brokers are away or back. Those that have them again say so only when all the
#: others have noticed, too: until then their tasks stay where they are.
_SETTLED_SHARE = 0.5
_USUAL_S = 10.0
_WAITING_FOR = "brokers of a running worker"


class BrokerContact:
    """Asks in a thread, from `start` to `close`.

    Args:
        ask: whether a broker answers within so many seconds.
        lost_after_s: brokers count as lost when they did not answer for so long, in seconds.
        waiting: told while they do not answer.
        servers: their addresses, for people.
        now: a clock, in seconds.
    """

    def __init__(
        self,
        ask: Callable[[float], bool],
        lost_after_s: float,
        waiting: Blockers,
        servers: str,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._lost_after_s = lost_after_s
        self._waiting = waiting
        self._servers = servers
        self._now = now
        self._period_s = min(lost_after_s / _QUESTIONS, _LONGEST_PERIOD_S)
        self._answer_s = lost_after_s * _ANSWER_SHARE
        self._answering_since: float | None = now()
        self._silent_since = now()
        self._told = False
        self._closed = threading.Event()

    def start(self) -> None:
        """Begin to ask."""
        threading.Thread(target=self._run, name="millpond-brokers", daemon=True).start()

    def close(self) -> None:
        """Ask nothing any more."""
        self._closed.set()

    @property
    def silent_s(self) -> float:
        """For how long no broker has answered, in seconds; 0 while they do."""
        return 0.0 if self._answering_since is not None else self._now() - self._silent_since

    @property
    def lost(self) -> bool:
        """Whether that is longer than it may be."""
        return self.silent_s >= self._lost_after_s

    @property
    def brokers(self) -> Brokers:
        """What the coordinator is told."""
        since = self._answering_since
        if since is None:
            return Brokers.LOST if self.lost else Brokers.SILENT
        settled = self._now() - since >= self._lost_after_s * _SETTLED_SHARE
        return Brokers.ANSWERING if settled else Brokers.SILENT

    def look(self) -> None:
        """Ask once."""
        asked_at = self._now()
        if self._ask(self._answer_s):
            if self._answering_since is None:
                self._answering_since = self._now()
                self._waiting.ends(_WAITING_FOR)
                if self._told:
                    log.info("brokers answer this worker again")
                self._told = False
            return
        if self._answering_since is not None:
            # No more than the question may take: a process that was frozen meanwhile has lost nothing yet.
            self._silent_since = max(asked_at, self._now() - 2 * self._answer_s)
            self._answering_since = None
            self._waiting.begins(_WAITING_FOR, self._trouble(), min(self._lost_after_s, _USUAL_S))
        if self.lost and not self._told:
            self._told = True
            log.warning("%s", self._trouble())

    def _trouble(self) -> BrokerError:
        # Always the same sentence: each new one would be news to all who watch.
        return BrokerError(
            f"no broker at '{self._servers}' answers this worker any more, and other workers take its tasks over if they have "
            f"brokers. Check the brokers, and the network between them and this worker."
        )

    def _run(self) -> None:
        while not self._closed.wait(self._period_s):
            self.look()


def asking(settings: dict[str, Any]) -> Callable[[float], bool]:
    """Return a function that tells whether a broker answers within so many seconds.

    It keeps its connection, and asks with a new client when that gives no answer: a client may not find brokers again that were
    away (see `lifelines.py`).

    Args:
        settings: of an admin client.
    """
    client: AdminClient | None = None

    def ask(timeout_s: float) -> bool:
        nonlocal client
        if client is not None and answers(client, COMMON_TOPIC, timeout_s):
            return True
        client = AdminClient(dict(settings), logger=client_log)
        return answers(client, COMMON_TOPIC, timeout_s)

    return ask
