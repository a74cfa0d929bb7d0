"""Sends the rows of the outbox as records of the producer; with exactly_once, in a transaction.

Rows are tuples in the order of the arguments of `Producer.produce`, so one C loop sends a whole batch.
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

log: logging.Logger = logging.getLogger(__name__)

_ROOM_WAIT_S = 0.05
#: Long enough for the client's threads to notice the flush.
_HASTEN_S = 0.001
_VALUE_SLOT, _KEY_SLOT = 1, 2
_DELIVERY_SLOT = 4
_TIMESTAMP_SLOT = 6
_FIRST_MS = 1
_timestamp = itemgetter(_TIMESTAMP_SLOT)


class RecordCollector:
    """The sender of rows in order, which tracks the offset of the last record of every changelog partition.

    Attributes:
        outbox: rows to send, shared by all tasks of the worker.
        acknowledged: the offset after the newest acknowledged record of each changelog partition that has one since its
            last `take_acknowledged`, by tracking key.
        sent: number of records handed to the producer.
        in_transaction: whether a transaction is open.
        begun_at: the time at which the last transaction began, in monotonic seconds.
        measures: whether to count bytes.
        bytes: the keys and values of the records in the transaction, in bytes, if they are counted.
    """

    def __init__(self, producer: Producer, *, transactional: bool) -> None:
        self.producer = producer
        self.outbox: list[Outgoing] = []
        self.acknowledged: dict[Any, int] = {}
        self.sent: int = 0
        self.in_transaction: bool = False
        self._transactional = transactional
        self.begun_at: float = 0.0
        self.measures: bool = False
        self.bytes: int = 0
        self._delivery_error: KafkaError | None = None

    def drain(self) -> None:
        """Hand all rows of the outbox to the producer.

        Raises:
            KafkaException: the producer is fenced or has a fatal error.
        """
        if self.outbox:
            rows = self.outbox[:]
            self.outbox.clear()
            self.send(rows)

    def send(self, rows: Sequence[Outgoing]) -> None:
        """Hand `rows` to the producer, waiting while its queue is full.

        Raises:
            KafkaException: the client rejects a record or has a fatal error; the rows after it are not sent.
        """
        self.ensure_transaction()
        self.sent += len(rows)
        if self.measures:
            self.bytes += sum(len(row[_VALUE_SLOT] or b"") + len(row[_KEY_SLOT] or b"") for row in rows)
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
                was_empty = self.await_room(was_empty=was_empty and taken == 1)
        self.producer.poll(0)

    def await_room(self, *, was_empty: bool) -> bool:
        """Wait up to 50 ms for room in the producer's queue.

        Args:
            was_empty: whether the queue was empty when the client rejected the record for lack of room.

        Returns:
            Whether the queue was empty before the wait.

        Raises:
            KafkaException: the record is larger than the whole queue.
        """
        if was_empty:
            raise KafkaException(
                KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "larger than the producer's 'queue.buffering.max.kbytes'")
            )
        is_empty = not len(self.producer)
        self.producer.poll(_ROOM_WAIT_S)
        return is_empty

    def ensure_transaction(self) -> None:
        """Begin a transaction, unless one is open or the producer is not transactional."""
        if self._transactional and not self.in_transaction:
            self.producer.begin_transaction()
            self.in_transaction = True
            self.begun_at = time.monotonic()
            self.bytes = 0

    @property
    def transaction_s(self) -> float:
        """The time for which the transaction has been open, in seconds; 0 without an open transaction."""
        return time.monotonic() - self.begun_at if self.in_transaction else 0.0

    def send_tracked(self, key: Any, rows: list[Outgoing]) -> None:
        """Send the changelog rows of one store partition; `acknowledged[key]` is set from the last of them.

        Args:
            key: the store's name and its partition.
            rows: at least one row; the last one gets a delivery callback.
        """
        last = rows[-1]
        rows[-1] = (*last[:_DELIVERY_SLOT], self._tracker(key), *last[_DELIVERY_SLOT + 1 :])
        self.send(rows)

    def _tracker(self, key: Any) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                if offset is not None:  # for a duplicate, brokers do not always return the offset
                    self.acknowledged[key] = offset + 1
            else:
                self._delivery_error = error

        return delivered

    def take_acknowledged(self, key: Any) -> int | None:
        """Return the offset after the newest acknowledged record of a changelog partition, and forget it.

        A task may move away and come back: what this worker wrote before says nothing about the changelog's end then.

        Args:
            key: as for `send_tracked`.

        Returns:
            None if there was no such record since the last call.
        """
        return self.acknowledged.pop(key, None)

    @property
    def unacknowledged(self) -> int:
        """The number of records without an acknowledgement, as of the last `poll` of the producer."""
        return len(self.producer)

    def hasten(self) -> None:
        """Make the client send the records that it holds back for larger batches. Takes about a millisecond."""
        self.producer.flush(_HASTEN_S)

    def delivered(self) -> bool:
        """Return whether all records sent so far are acknowledged. Never blocks.

        Raises:
            KafkaException: a record was rejected, or the producer has a fatal error.
        """
        # flush(0) would wake the client's threads in every turn of the loop; `hasten` does that where it helps.
        self.producer.poll(0)
        if self._delivery_error is not None:
            error, self._delivery_error = self._delivery_error, None
            raise KafkaException(error)
        return self.unacknowledged == 0


def timestamped(row: Outgoing) -> Outgoing:
    """Return the row with timestamp 1 ms instead of 0, since the client replaces 0 by the current time."""
    return row if row[_TIMESTAMP_SLOT] else (*row[:_TIMESTAMP_SLOT], _FIRST_MS, *row[_TIMESTAMP_SLOT + 1 :])


def _taken(rows: Sequence[Outgoing], remaining: Iterator[Outgoing]) -> int:
    """Return the number of rows taken from the iterator, with the rejected one."""
    return len(rows) - remaining.__length_hint__()  # type: ignore[attr-defined, no-any-return]
