"""The number of input records in a transaction: fewer after one that took too long, and slowly more again. Pure.

The broker aborts a transaction that is open for longer than `transaction.timeout.ms`. If a quota, slow brokers or large
records make it last so long, the same batch would be processed and aborted for ever. Usually there is no limit, and the
commit interval ends a transaction (docs/decisions/0061-smaller-transactions.md).
"""

from __future__ import annotations

__all__ = ("TransactionSize",)

#: A transaction that takes more than this share of its time is followed by smaller ones, and after one that takes less
#: than the second, the next may be larger.
_LONG, _SHORT = 1 / 2, 1 / 4
_GROWTH = 4
#: A larger limit is none.
_NO_LIMIT = 200_000


class TransactionSize:
    """The limit of input records in a transaction, from how long the last ones took.

    Args:
        timeout_s: `transaction.timeout.ms`, in seconds; None without transactions, which then have no limit.

    Attributes:
        limit: the maximum of records in a transaction; None without a limit.
        lost_in_a_row: how often the smallest transaction was lost since the last one that was committed.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self.limit: int | None = None
        self.lost_in_a_row: int = 0
        self._timeout_s = timeout_s
        self._processed = self._committing = 0

    @property
    def room(self) -> int | None:
        """The number of records that the next transaction may still have; None without a limit."""
        return None if self.limit is None else max(0, self.limit - self._processed)

    @property
    def full(self) -> bool:
        """Whether no more records may be processed before a commit begins."""
        return self.limit is not None and self._processed >= self.limit

    def processed(self, records: int) -> None:
        """Count records that were processed."""
        self._processed += records

    def commit_begun(self) -> None:
        """Count the processed records as those of the commit in flight."""
        self._committing, self._processed = self._processed, 0

    def committed(self, seconds: float) -> None:
        """Adapt the limit after a commit.

        Args:
            seconds: how long the transaction was open.
        """
        records, self._committing = self._committing, 0
        self.lost_in_a_row = 0
        if self._timeout_s is None:
            return
        if seconds > self._timeout_s * _LONG and records:
            self.limit = max(1, records // 2)
        elif self.limit is not None and records >= self.limit and seconds < self._timeout_s * _SHORT:
            self.limit += max(1, self.limit // _GROWTH)
            if self.limit > _NO_LIMIT:
                self.limit = None

    def lost(self) -> int:
        """Halve the limit, since a transaction took too long; return how many records that one had."""
        records = self._committing or self._processed
        if records <= 1:
            self.lost_in_a_row += 1
        self.limit = max(1, min(records, self.limit or records) // 2)
        self.forget()
        return records

    def forget(self) -> None:
        """Forget records that are not committed, since they are processed again."""
        self._processed = self._committing = 0
