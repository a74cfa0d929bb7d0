"""Public reports about transactions."""

from __future__ import annotations

from millpond.runtime.commit.transaction_size import TransactionSize


def test_a_transaction_that_timed_out_is_not_repeated_with_the_same_size() -> None:
    """Kafka Streams processed the same number of records again after a transaction timed out, and again it did.

    https://github.com/apache/kafka/pull/6810
    """
    size, fits, lost = TransactionSize(10.0), 700, 0
    batch = 5_000
    while batch > fits:
        size.processed(batch)
        size.commit_begun()
        size.lost()
        lost += 1
        assert size.room is not None
        batch = size.room
    assert lost == 3
