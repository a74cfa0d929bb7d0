"""The moment up to which a copy is complete: only answers of brokers count, as of the time of the request."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from millpond.runtime.kafka.end_offsets import EndOffsets
from millpond.runtime.offsets.completeness import Completeness, Moment
from millpond.runtime.offsets.metadata import Partition

LOG = Partition("log", 0)


def _at(seconds: float) -> Moment:
    return Moment(seconds, int(seconds * 1000))


def test_copy_at_the_end_is_complete_as_of_the_request() -> None:
    """Not as of the answer, which may have taken long."""
    copy = Completeness(0)
    copy.record_end(_at(5), 10, 10)
    assert (copy.at, copy.as_of_ms, copy.asked_at) == (5, 5_000, 5)


def test_copy_that_lags_is_complete_once_it_gets_there() -> None:
    """As of the request whose end offset it has reached, and of no later one."""
    copy = Completeness(0)
    for second, end in ((1, 10), (2, 20), (3, 30)):
        copy.record_end(_at(second), end, 5)
    assert copy.at is None
    copy.advance(25)
    assert (copy.at, copy.as_of_ms, copy.asked_at) == (2, 2_000, 3)


def test_many_requests_take_bounded_memory() -> None:
    """A copy that is far behind gets every answer, and is complete in the end."""
    copy = Completeness(0)
    for second in range(1_000):
        copy.record_end(_at(second), 1_000 + second, 0)
    assert len(copy._pending) <= 64
    copy.advance(5_000)
    assert copy.at == 999


class _Asker:
    def __init__(self) -> None:
        self.asked: list[Future[Any]] = []
        self.complaints = 0

    def ask_ends(self, partitions: Any) -> dict[Partition, Future[Any]]:
        self.asked.append(Future())
        return dict.fromkeys(partitions, self.asked[-1])

    def unanswered(self) -> None:
        self.complaints += 1


def test_one_request_at_a_time_and_none_too_soon() -> None:
    """Without an answer nothing is updated; after an error the request is repeated."""
    asker, now, told = _Asker(), _at(1), []
    ends = EndOffsets(asker, 0.5, lambda: now)

    def look() -> None:
        ends.poll(lambda: {LOG: lambda asked, end: told.append((asked.monotonic, end))})

    look()
    now = _at(9)
    look()
    assert (len(asker.asked), told) == (1, [])
    asker.asked[0].set_result(SimpleNamespace(offset=7))
    look()
    assert (len(asker.asked), told) == (2, [(1, 7)])
    now = _at(9.2)
    asker.asked[1].set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
    look()
    assert (len(asker.asked), asker.complaints) == (2, 1)
    now = _at(9.5)
    look()
    assert (len(asker.asked), told) == (3, [(1, 7)])
