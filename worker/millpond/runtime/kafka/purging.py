"""The deletion of processed records from repartition topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.missing_rights import Access, Operation

__all__ = ("Purges",)

log: logging.Logger = logging.getLogger(__name__)


class Purges:
    """The requests that delete processed records. At most one is in flight; nothing waits for its answer.

    Args:
        unanswered: called after a request that got no answer.
        access: names the user in the warning about a missing right.
    """

    def __init__(self, unanswered: Callable[[], None], access: Access) -> None:
        self._unanswered = unanswered
        self._access = access
        self._topics: set[str] = set()
        self._sent: list[Future[object]] = []
        self._warned = False

    def send(self, admin: Callable[[], AdminClient], positions: Mapping[tuple[str, int], int]) -> bool:
        """Delete records, unless a request is in flight; return whether one was sent. The next repeats what failed.

        Args:
            admin: returns the client.
            positions: by topic and partition, the offset below which to delete.
        """
        if not all(future.done() for future in self._sent):
            return False
        self._check([error for future in self._sent if (error := future.exception()) is not None])
        self._sent = []
        if not positions:
            return False
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        self._topics = {topic for topic, _ in positions}
        self._sent = list(admin().delete_records(wanted).values())
        return True

    def _check(self, errors: list[BaseException]) -> None:
        if not errors:
            return
        causes = [error.args[0] for error in errors if isinstance(error, KafkaException)]
        denied = [cause for cause in causes if kind_of(cause) is Kind.FORBIDDEN]
        if len(denied) < len(errors):
            self._unanswered()
        if denied and not self._warned:
            self._warned = True
            log.warning(
                "repartition topics: processed records cannot be deleted (%s), so the topics grow. %s",
                denied[0].str(), self._access.cure(denied[0], self._topics, Operation.DELETE),
            )  # fmt: skip
