"""Why a query fails: a reason for programs (those of Kafka's IQv2, KIP-796), a sentence for people."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from millpond.errors import MillpondError

__all__ = ("Failure", "FailureReason", "QueryFailed", "status_of")


class FailureReason(enum.StrEnum):
    """What a program may act on."""

    BAD_REQUEST = "BAD_REQUEST"
    """The request cannot be understood. Kafka has no such reason: there the compiler finds these."""
    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """The store is of another kind than the query wants."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The application has no such store, or the store no such partition."""
    NOT_PRESENT = "NOT_PRESENT"
    """No worker that can be reached has the partition."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """The worker that has the partition does not process it, or not yet."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The state is older than the query allows: behind its position, staleness or lag bound."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """Reading the store failed."""
    UNAUTHORIZED = "UNAUTHORIZED"
    """The request shows no valid token."""
    BUSY = "BUSY"
    """The worker answers as many queries as it may, or this answer took longer than it may."""


#: What another worker, or a later moment, may do better.
_PASSING = frozenset(
    {FailureReason.NOT_PRESENT, FailureReason.NOT_ACTIVE, FailureReason.NOT_UP_TO_BOUND, FailureReason.BUSY}
)

_STATUS = {
    FailureReason.BAD_REQUEST: 400,
    FailureReason.UNKNOWN_QUERY_TYPE: 400,
    FailureReason.DOES_NOT_EXIST: 404,
    FailureReason.STORE_EXCEPTION: 500,
    FailureReason.UNAUTHORIZED: 401,
}


def status_of(reason: FailureReason) -> int:
    """The HTTP status that goes with a reason; 503 for what may pass."""
    return _STATUS.get(reason, 503)


class Failure(msgspec.Struct, frozen=True):
    """A failure as it travels."""

    reason: FailureReason
    message: str
    partitions: tuple[int, ...] = ()
    """The partitions of the store that could not be read."""


class QueryFailed(MillpondError):
    """A query has no answer.

    Attributes:
        reason: for programs.
        partitions: the partitions of the store that could not be read, where that is the cause.
    """

    def __init__(self, reason: FailureReason, message: str, partitions: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.partitions = tuple(partitions)

    @property
    def passing(self) -> bool:
        """Whether another worker, or a later moment, may do better."""
        return self.reason in _PASSING

    @property
    def failure(self) -> Failure:
        """As it travels."""
        return Failure(self.reason, str(self), self.partitions)

    @classmethod
    def of(cls, failure: Failure) -> QueryFailed:
        """The error of a failure that came from elsewhere."""
        return cls(failure.reason, failure.message, failure.partitions)
