"""What a worker does about commits that fail one after the other: it backs off, and gives up what will never succeed."""

from __future__ import annotations

from datetime import timedelta

from confluent_kafka import KafkaError

from millpond.backoff import Backoff
from millpond.errors import BrokerError

__all__ = ("CommitFailures",)

#: A commit that is refused for such a reason is refused again, until somebody changes a setting or the application.
_CURES = {
    KafkaError.OFFSET_METADATA_TOO_LARGE: "Split the sub-topology with repartition(), or raise 'offset.metadata.max.bytes' of the brokers.",
    KafkaError.INVALID_COMMIT_OFFSET_SIZE: "Split the sub-topology with repartition(), or raise 'offset.metadata.max.bytes' of the brokers.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Grant this application's user the right to read its inputs and to write its outputs.",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Grant this application's user the right to read the group that is named like 'application.id'.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Grant this application's user the right to write transactional ids that begin with 'application.id'.",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Grant this application's user the right to write idempotently.",
    KafkaError.INVALID_GROUP_ID: "Choose another 'application.id'.",
    KafkaError.UNSUPPORTED_VERSION: "Run brokers of version 3.6 or newer.",
}  # fmt: skip
_MOST_ALIKE = 3
_BACKOFF = Backoff(timedelta(milliseconds=100), timedelta(seconds=5))


class CommitFailures:
    """Failed commits of a worker without one in between that succeeded."""

    def __init__(self) -> None:
        self._commits = -1
        self._failures = 0
        self._code: int | None = None
        self._alike = 0

    def failed(self, cause: KafkaError | None, commits: int) -> float:
        """Note a failure.

        Args:
            cause: what the client said, None when it was not the client.
            commits: how many commits have succeeded so far.

        Returns:
            how long to wait before the worker goes back to the last commit, in seconds; 0 at first.

        Raises:
            BrokerError: it failed for good: for the same reason a few times, which will not pass by itself.
        """
        if commits != self._commits:
            self._commits, self._failures, self._alike, self._code = commits, 0, 0, None
        self._failures += 1
        code = cause.code() if cause is not None else None
        self._alike = self._alike + 1 if code == self._code else 1
        self._code = code
        if cause is not None and code in _CURES and self._alike >= _MOST_ALIKE:
            raise BrokerError(
                f"the commit was refused {self._alike} times for the same reason: {cause.str()}. Nothing of it is committed. "
                f"{_CURES[code]}"
            )
        return 0.0 if self._failures == 1 else _BACKOFF.wait_s(self._failures - 1)
