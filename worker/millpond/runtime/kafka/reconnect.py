"""Finds clients that lost all brokers and will not find them again.

A broker on its way down may answer that the cluster has no brokers. librdkafka, from 2.10 on, forgets all it knew then;
whether it turns to `bootstrap.servers` again is a race between two of its threads (confluentinc/librdkafka#5301). A client
that loses it reports once that all brokers are down, and stays silent for ever: no error, no record, no delivery.

So when a client reports this, a thread asks with new clients until one gets an answer. A while later each of the worker's
clients is asked: one that gets none is dead, and is to be replaced. The worker's loop asks, since a client lets in one call
at a time: one that lives has an answer within milliseconds.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Collection, Mapping

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

__all__ = ("COMMON_TOPIC", "Lifelines", "Line", "answers")

#: Every cluster has it. A question about another topic may create that.
COMMON_TOPIC = "__consumer_offsets"

_BROKERS_ANSWER_S = 2.0
_PAUSE_S = 0.2
#: A client that lives reconnects within a second.
_RECONNECT_S = 2.0
_CLIENT_ANSWERS_S = 0.5
_QUESTIONS = 2


class Line(enum.StrEnum):
    """The clients that a worker cannot do without, by what each does."""

    READER = "reads inputs"
    COPIER = "reads changelogs"
    PRODUCER = "writes"


def answers(client: Consumer | Producer | AdminClient, topic: str | None, timeout_s: float) -> bool:
    """Whether a client is told of a topic, or of all, within `timeout_s`."""
    try:
        client.list_topics(topic, timeout=timeout_s)
    except KafkaException:
        return False
    return True


class Lifelines:
    """Looks after the clients of a worker.

    Args:
        lines: whether the client that does this now gets an answer within so many seconds.
        brokers: whether a new client does; asked in a thread.
    """

    def __init__(self, lines: Mapping[Line, Callable[[float], bool]], brokers: Callable[[float], bool]) -> None:
        self._lines = lines
        self._brokers = brokers
        self._lock = threading.Lock()
        self._asking = False
        self._back_at: float | None = None
        self._closed = threading.Event()

    def check(self) -> None:
        """Some client reports that all brokers are down: find out later which ones come back. Safe from any thread."""
        with self._lock:
            self._back_at = None
            if not self._asking:
                self._asking = True
                threading.Thread(target=self._await_brokers, name="millpond-lifelines", daemon=True).start()

    @property
    def due(self) -> bool:
        """Whether the clients had the time to find the brokers, so that `dead` tells."""
        back_at = self._back_at
        return back_at is not None and time.monotonic() >= back_at + _RECONNECT_S

    def dead(self) -> Collection[Line]:
        """The clients that are to be replaced. To be asked once when it is due; takes a second for each of them."""
        self._back_at = None
        silent = [
            line for line, ask in self._lines.items() if not any(ask(_CLIENT_ANSWERS_S) for _ in range(_QUESTIONS))
        ]
        if silent and not self._brokers(_CLIENT_ANSWERS_S):
            self.check()  # brokers are away again: nothing can be told
            return ()
        return silent

    def close(self) -> None:
        """Ask nothing any more."""
        self._closed.set()

    def _await_brokers(self) -> None:
        while not (back := self._brokers(_BROKERS_ANSWER_S)) and not self._closed.wait(_PAUSE_S):
            pass
        with self._lock:
            self._asking = False
            self._back_at = time.monotonic() if back else None
