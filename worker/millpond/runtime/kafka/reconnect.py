"""Finds Kafka clients that lost all brokers and do not reconnect.

A broker that is shutting down may return metadata without brokers. librdkafka, from 2.10 on, then forgets all
brokers; whether it connects to `bootstrap.servers` again is a race between two of its threads
(confluentinc/librdkafka#5301). A client that loses the race reports once that all brokers are down, and is silent for
ever: no error, no record, no delivery.

So after such a report, a thread tries new clients until one gets an answer. A little later, each of the worker's
clients is checked: one that gets no answer is dead and must be replaced. The worker's loop does this check, since a
client allows one call at a time; a live client answers within milliseconds.
"""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

__all__ = ("COMMON_TOPIC", "ReconnectCheck", "WorkerClient", "answers")

log: logging.Logger = logging.getLogger(__name__)

#: A topic that every cluster has. A metadata request for another topic may create it.
COMMON_TOPIC = "__consumer_offsets"

_BROKER_TIMEOUT_S = 2.0
_PAUSE_S = 0.2
#: A live client reconnects within a second.
_RECONNECT_S = 2.0
_CLIENT_TIMEOUT_S = 0.5
_ATTEMPTS = 2


class WorkerClient(enum.StrEnum):
    """The clients that a worker needs, by their use."""

    READER = "reads inputs"
    COPIER = "reads changelogs"
    PRODUCER = "writes"


def answers(client: Consumer | Producer | AdminClient, topic: str | None, timeout_s: float) -> bool:
    """Return whether a client gets the metadata of a topic, or of all topics, within `timeout_s` seconds."""
    try:
        client.list_topics(topic, timeout=timeout_s)
    except KafkaException:
        return False
    return True


class ReconnectCheck:
    """The check for a worker's clients that do not reconnect.

    Args:
        clients: for each client, a function that returns whether it gets an answer within a number of seconds.
        brokers: returns whether a new client gets an answer; called in a thread.
    """

    def __init__(
        self, clients: Mapping[WorkerClient, Callable[[float], bool]], brokers: Callable[[float], bool]
    ) -> None:
        self._clients = clients
        self._brokers = brokers
        self._lock = threading.Lock()
        self._probing = False
        self._back_at: float | None = None
        self._closed = threading.Event()

    def check(self) -> None:
        """Start a check, since a client reported that all brokers are down. Safe from any thread."""
        with self._lock:
            self._back_at = None
            if not self._probing:
                self._probing = True
                threading.Thread(target=self._await_brokers, name="millpond-reconnect", daemon=True).start()

    @property
    def due(self) -> bool:
        """Whether `dead` may be called: brokers have answered for so long that all live clients have reconnected."""
        back_at = self._back_at
        return back_at is not None and time.monotonic() >= back_at + _RECONNECT_S

    def dead(self) -> Collection[WorkerClient]:
        """Return the clients to replace. Call it once when `due`; each dead client takes a second."""
        self._back_at = None
        silent = [
            client
            for client, answers_within in self._clients.items()
            if not any(answers_within(_CLIENT_TIMEOUT_S) for _ in range(_ATTEMPTS))
        ]
        if silent and not self._brokers(_CLIENT_TIMEOUT_S):
            self.check()  # the brokers are down again, so the silence proves nothing
            return ()
        return silent

    def close(self) -> None:
        """Stop the thread, without waiting for it."""
        self._closed.set()

    def _answering(self) -> bool:
        try:
            return self._brokers(_BROKER_TIMEOUT_S)
        except Exception:
            log.exception("brokers: cannot check whether they answer; checking again")
            return False

    def _await_brokers(self) -> None:
        while not (back := self._answering()) and not self._closed.wait(_PAUSE_S):
            pass
        with self._lock:
            self._probing = False
            self._back_at = time.monotonic() if back else None
