"""Failed commits in a row: the worker backs off, and ends if a retry cannot succeed."""

from __future__ import annotations

from datetime import timedelta

from confluent_kafka import KafkaError

from millpond.backoff import Backoff
from millpond.errors import BrokerError

__all__ = ("CommitFailures",)

_TOO_LARGE = "Split the sub-topology with repartition(), or raise 'offset.metadata.max.bytes' of the brokers."
#: Errors that a retry does not cure, each with its cure: a change of a setting or of the application.
_CURES = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: _TOO_LARGE,
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: _TOO_LARGE,
    KafkaError.INVALID_GROUP_ID: "Choose another 'application.id'.",
    KafkaError.UNSUPPORTED_VERSION: "Run brokers of version 3.6 or newer.",
}
_MAX_REPEATS = 3
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=5))


class CommitFailures:
    """The failed commits of a worker since its last successful one."""

    def __init__(self) -> None:
        self._commits = -1
        self._failures = 0
        self._code: int | None = None
        self._repeats = 0

    def failed(self, cause: KafkaError | None, commits: int, lacking: str = "") -> float:
        """Record a failed commit.

        Args:
            cause: the client's error; None if the failure has another cause.
            commits: the number of successful commits so far.
            lacking: the sentence about a right that is missing, which a retry does not cure either; empty without one.

        Returns:
            The time to wait before the worker goes back to the last commit, in seconds; 0 after the first failure.

        Raises:
            BrokerError: commits failed repeatedly for the same reason, which a retry does not cure.
        """
        if commits != self._commits:
            self._commits, self._failures, self._repeats, self._code = commits, 0, 0, None
        self._failures += 1
        code = cause.code() if cause is not None else None
        self._repeats = self._repeats + 1 if code == self._code else 1
        self._code = code
        cure = lacking or (_CURES.get(cause.code(), "") if cause is not None else "")
        if cause is not None and cure and self._repeats >= _MAX_REPEATS:
            raise BrokerError(
                f"the commit was rejected {self._repeats} times for the same reason, and nothing is committed: "
                f"{cause.str()}. {cure}"
            )
        return 0.0 if self._failures == 1 else _BACKOFF.wait_s(self._failures - 1)
