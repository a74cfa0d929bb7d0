"""Transactions have fewer input records after one that took too long, and slowly more again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from millpond.runtime.commit.lost_connections import LostConnections
from millpond.runtime.commit.pipeline import CommitFailed, TransactionCommitter
from millpond.runtime.commit.throttling import Throttling
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from tests.support import kafka

TIMEOUT_S = 10.0


def run(size: TransactionSize, records: int, seconds: float) -> None:
    """Process and commit as many records."""
    size.processed(records)
    size.commit_begun()
    size.committed(seconds)


def test_there_is_no_limit_while_transactions_are_short() -> None:
    """The commit interval ends a transaction."""
    size = TransactionSize(TIMEOUT_S)
    run(size, 1_000_000, 4.9)
    assert (size.limit, size.room, size.full) == (None, None, False)


def test_there_is_no_limit_without_transactions() -> None:
    """Under at least once, no broker aborts anything."""
    size = TransactionSize(None)
    run(size, 1_000, 1e9)
    assert size.limit is None


def test_a_lost_transaction_is_followed_by_one_of_half_the_size() -> None:
    """Down to one record. Records that were processed beside the commit do not count, since they were not in it."""
    size = TransactionSize(TIMEOUT_S)
    size.processed(12)
    size.commit_begun()
    size.processed(500)
    assert size.lost() == 12
    assert (size.limit, size.room, size.full) == (6, 6, False)
    size.processed(6)
    assert size.full
    assert size.lost() == 6
    assert size.lost() == 0
    assert size.limit == 1
    assert size.lost_in_a_row == 1


def test_a_long_transaction_is_followed_by_a_smaller_one_before_any_is_lost() -> None:
    """More than half of the time is too near to the end."""
    size = TransactionSize(TIMEOUT_S)
    run(size, 1_000, 5.1)
    assert size.limit == 500
    run(size, 500, 4.0)
    assert size.limit == 500
    run(size, 100, 0.1)
    assert size.limit == 500, "it was not as large as it could be"
    run(size, 500, 2.0)
    assert size.limit == 625


def test_the_limit_ends_when_transactions_are_short_again() -> None:
    """It grows by a quarter each time."""
    size = TransactionSize(TIMEOUT_S)
    size.processed(1)
    size.lost()
    commits = 0
    while size.limit is not None:
        run(size, size.limit, 0.01)
        commits += 1
    assert commits < 70
    assert size.lost_in_a_row == 0


@given(st.integers(1, 1_000_000), st.integers(1, 100_000), st.booleans())
def test_every_backlog_is_processed_with_few_lost_transactions(records: int, fitting: int, grows: bool) -> None:
    """However slow the brokers are, as long as one record fits, and however fast they become."""
    size = TransactionSize(TIMEOUT_S)
    left, lost, first = records, 0, fitting
    for _ in range(10_000):
        if not left:
            break
        batch = left if size.limit is None else min(left, size.limit)
        size.processed(batch)
        size.commit_begun()
        if batch > fitting:
            size.lost()
            lost += 1
            continue
        size.committed(TIMEOUT_S * batch / fitting)
        left -= batch
        fitting += int(grows)
    assert lost <= (records // first).bit_length()
    assert not left or first < records / 1_000


def test_brokers_delays_are_added_up_and_end() -> None:
    """The longest one since the last commit is for messages."""
    throttling = Throttling()
    for seconds in (0.2, 30.0, 0.1):
        throttling.note(SimpleNamespace(throttle_time=seconds))  # type: ignore[arg-type]
    assert throttling.total_s == pytest.approx(30.3)
    assert throttling.longest_s == 30.0
    assert 29.0 < throttling.left_s <= 30.0
    throttling.reset()
    assert throttling.longest_s == 0.0


class _Client:
    """A producer that records the timeouts of calls, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.timeouts: list[float] = []
        self.failures = failures

    def send_offsets_to_transaction(self, _offsets: Any, _group: Any, timeout: float) -> None:
        self._call(timeout)

    def commit_transaction(self, timeout: float) -> None:
        self._call(timeout)

    def poll(self, _timeout: float) -> None:
        """Nothing arrives."""

    def _call(self, timeout: float) -> None:
        self.timeouts.append(timeout)
        if self.failures:
            self.failures -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))


def _commit(client: _Client, left_s: float, longest_call_s: float) -> None:
    consumer = SimpleNamespace(consumer_group_metadata=lambda: None)
    connections = LostConnections(kafka.log)
    given: Any = (client, consumer, lambda: None, lambda: left_s, longest_call_s, lambda *_: None, connections, 1.0)
    committer = TransactionCommitter(*given)
    committer.start({Partition("in", 0): (1, OffsetMetadata())}, {})
    committer.complete()
    deadline = time.monotonic() + 60
    try:
        while not committer.done():
            assert time.monotonic() < deadline
            time.sleep(0.001)
    finally:
        committer.close()


@pytest.mark.parametrize(
    ("left_s", "longest_call_s", "expected"), [(50.0, 20.0, 20.0), (8.0, 20.0, 8.0), (-1.0, 20.0, 0.5)]
)
def test_a_call_may_take_what_the_transaction_has_left(left_s: float, longest_call_s: float, expected: float) -> None:
    """But not longer than a request waits for its answer, since the client then sends it again."""
    client = _Client()
    _commit(client, left_s, longest_call_s)
    assert client.timeouts == [expected, expected]


def test_a_repeated_call_ends_the_producer_and_none_is_repeated_without_time() -> None:
    """The unanswered request may still arrive. After the transaction's time, the broker aborts it."""
    client = _Client(failures=1)
    with pytest.raises(CommitFailed, match="only after it was repeated"):
        _commit(client, 50.0, 20.0)
    assert len(client.timeouts) == 3
    client = _Client(failures=1)
    with pytest.raises(CommitFailed, match="timed out") as raised:
        _commit(client, 0.0, 20.0)
    assert raised.value.cause is not None
    assert len(client.timeouts) == 1
