"""The way out: rows of the outbox become records of the producer, in an open transaction where one is wanted.

Rows are tuples in the order of `Producer.produce`'s arguments, so a whole batch goes through one C loop.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from operator import itemgetter
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millpond.runtime.processing.context import Outgoing

__all__ = ("RecordCollector", "timestamped")

log = logging.getLogger(__name__)

_ROOM_WAIT_S = 0.05
#: Long enough for the client's threads to see that they are to hurry.
_HASTEN_S = 0.001
_DELIVERY_SLOT = 4
_TIMESTAMP_SLOT = 6
_FIRST_MS = 1
_timestamp = itemgetter(_TIMESTAMP_SLOT)


class RecordCollector:
    """Sends rows in order; knows the offset of the last record of every changelog partition.

    Attributes:
        outbox: rows waiting; shared by all tasks of the worker.
        acknowledged: offset after the newest acknowledged record of each tracked changelog, by tracking key.
        sent: records handed to the producer.
        in_transaction: a transaction is open.
    """

    def __init__(self, producer: Producer, *, transactional: bool) -> None:
        self.producer = producer
        self.outbox: list[Outgoing] = []
        self.acknowledged: dict[Any, int] = {}
        self.sent = 0
        self.in_transaction = False
        self._transactional = transactional
        self._begun_at = 0.0
        self._delivery_error: KafkaError | None = None

    def drain(self) -> None:
        """Hand all of the outbox to the producer.

        Raises:
            KafkaException: the producer is fenced or failed for good.
        """
        if self.outbox:
            rows = self.outbox[:]
            self.outbox.clear()
            self.send(rows)

    def send(self, rows: Sequence[Outgoing]) -> None:
        """Hand `rows` to the producer, waiting for room in its queue where there is none.

        Raises:
            KafkaException: the client refuses a record, or failed for good; the rows after it are not sent.
        """
        self.ensure_transaction()
        self.sent += len(rows)
        if not all(map(_timestamp, rows)):
            rows = list(map(timestamped, rows))
        produce = self.producer.produce
        remaining = iter(rows)
        was_empty = False
        while True:
            try:
                deque(starmap(produce, remaining), maxlen=0)
                break
            except BufferError:
                taken = _taken(rows, remaining)
                rows = rows[taken - 1 :]
                remaining = iter(rows)
                was_empty = self.await_room(was_empty and taken == 1)
        self.producer.poll(0)

    def await_room(self, was_empty: bool) -> bool:
        """Wait a little for room in the producer's queue.

        Args:
            was_empty: the queue was empty before this very record was rejected for lack of room.

        Returns:
            whether the queue is empty now.

        Raises:
            KafkaException: there was all the room that there is, and the record needs more.
        """
        if was_empty:
            raise KafkaException(
                KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "larger than the producer's 'queue.buffering.max.kbytes'")
            )
        is_empty = not len(self.producer)
        self.producer.poll(_ROOM_WAIT_S)
        return is_empty

    def ensure_transaction(self) -> None:
        """Begin a transaction unless one is open or none is wanted."""
        if self._transactional and not self.in_transaction:
            self.producer.begin_transaction()
            self.in_transaction = True
            self._begun_at = time.monotonic()

    @property
    def transaction_s(self) -> float:
        """How long the open transaction has been open, in seconds; 0 when none is."""
        return time.monotonic() - self._begun_at if self.in_transaction else 0.0

    def send_tracked(self, key: Any, rows: list[Outgoing]) -> None:
        """Send the changelog rows of one store partition; `acknowledged[key]` follows the last of them."""
        last = rows[-1]
        rows[-1] = (*last[:_DELIVERY_SLOT], self._tracker(key), *last[_DELIVERY_SLOT + 1 :])
        self.send(rows)

    def _tracker(self, key: Any) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                if offset is not None:  # a broker that had it already does not always say where
                    self.acknowledged[key] = offset + 1
            else:
                self._delivery_error = error

        return delivered

    @property
    def unacknowledged(self) -> int:
        """How many records the broker has not acknowledged yet, as of the last look at reports."""
        return len(self.producer)

    def hasten(self) -> None:
        """Have the client send what it holds back for fuller batches. Takes about a millisecond."""
        self.producer.flush(_HASTEN_S)

    def delivered(self) -> bool:
        """Whether everything sent so far is acknowledged. Never blocks.

        Raises:
            KafkaException: a record was refused, or the producer gave up.
        """
        # flush(0) would wake the client's threads at every turn of the loop; `hasten` does that when it helps.
        self.producer.poll(0)
        if self._delivery_error is not None:
            error, self._delivery_error = self._delivery_error, None
            raise KafkaException(error)
        return self.unacknowledged == 0


def timestamped(row: Outgoing) -> Outgoing:
    """The row, at 1 ms where it was at 0: the client takes 0 for "now", and "now" would move stream time by decades."""
    return row if row[_TIMESTAMP_SLOT] else (*row[:_TIMESTAMP_SLOT], _FIRST_MS, *row[_TIMESTAMP_SLOT + 1 :])


def _taken(rows: Sequence[Outgoing], remaining: Iterator[Outgoing]) -> int:
    """How many rows the iterator has handed out, the refused one included."""
    return len(rows) - remaining.__length_hint__()  # type: ignore[attr-defined, no-any-return]
