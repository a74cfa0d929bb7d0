"""Failures of queries: a reason for programs (as in Kafka's IQv2, KIP-796) and a message for people."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from millpond.errors import MillpondError

__all__ = ("Failure", "FailureReason", "QueryFailed", "status_of")


class FailureReason(enum.StrEnum):
    """The reason of a failure, for programs."""

    BAD_REQUEST = "BAD_REQUEST"
    """The request is invalid. Kafka Streams has no such reason: there the compiler finds these errors."""
    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    """The store is of another kind than the query needs."""
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    """The application has no such store, or the store no such partition."""
    NOT_PRESENT = "NOT_PRESENT"
    """No reachable worker has the partition."""
    NOT_ACTIVE = "NOT_ACTIVE"
    """The worker that has the partition does not process it, or not yet."""
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    """The state is older than the position, staleness or lag bound of the query allows."""
    STORE_EXCEPTION = "STORE_EXCEPTION"
    """Reading the store failed."""
    UNAUTHORIZED = "UNAUTHORIZED"
    """The request has no valid token."""
    BUSY = "BUSY"
    """The worker is at its limit of concurrent queries, or the answer took longer than allowed."""
    REGISTRY_UNAVAILABLE = "REGISTRY_UNAVAILABLE"
    """A schema registry does not answer, so a key or value cannot be converted."""


#: Reasons for which a retry, or another worker, may succeed.
_TRANSIENT = frozenset(
    {
        FailureReason.NOT_PRESENT,
        FailureReason.NOT_ACTIVE,
        FailureReason.NOT_UP_TO_BOUND,
        FailureReason.BUSY,
        FailureReason.REGISTRY_UNAVAILABLE,
    }
)

_STATUS = {
    FailureReason.BAD_REQUEST: 400,
    FailureReason.UNKNOWN_QUERY_TYPE: 400,
    FailureReason.DOES_NOT_EXIST: 404,
    FailureReason.STORE_EXCEPTION: 500,
    FailureReason.UNAUTHORIZED: 401,
}


def status_of(reason: FailureReason) -> int:
    """Return the HTTP status of a reason; 503 if a retry may succeed."""
    return _STATUS.get(reason, 503)


class Failure(msgspec.Struct, frozen=True):
    """A failure as it is sent over HTTP."""

    reason: FailureReason
    message: str
    partitions: tuple[int, ...] = ()
    """The partitions of the store that could not be read."""


class QueryFailed(MillpondError):
    """A query failed.

    Attributes:
        reason: the reason, for programs.
        partitions: the partitions of the store that could not be read, if that is the cause.
    """

    def __init__(self, reason: FailureReason, message: str, partitions: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.partitions: tuple[int, ...] = tuple(partitions)

    @property
    def passing(self) -> bool:
        """Whether a retry, or another worker, may succeed."""
        return self.reason in _TRANSIENT

    @property
    def failure(self) -> Failure:
        """The failure as it is sent over HTTP."""
        return Failure(self.reason, str(self), self.partitions)

    @classmethod
    def of(cls, failure: Failure) -> QueryFailed:
        """Return the error for a received failure."""
        return cls(failure.reason, failure.message, failure.partitions)
