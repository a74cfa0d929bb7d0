"""What the Kafka clients report beside records: noted where they say it, looked into by the worker between two turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError, KafkaException

from millpond.errors import BrokerError
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import log
from millpond.runtime.kafka.reconnect import ReconnectCheck, WorkerClient
from millpond.runtime.topics.plan import Plan

from .dispatch import GONE

__all__ = ("ClientErrors",)


class ClientErrors:
    """Collects the reports of one worker's clients."""

    def __init__(self) -> None:
        self._fatal: KafkaError | None = None
        self._doubtful = False
        self._reconnect: ReconnectCheck | None = None

    def watch(self, lines: Mapping[WorkerClient, Callable[[float], bool]], brokers: Callable[[float], bool]) -> None:
        """From now on, find out which clients do not come back after brokers were away; see `ReconnectCheck`."""
        self._reconnect = ReconnectCheck(lines, brokers)

    def close(self) -> None:
        """Ask clients nothing any more."""
        if self._reconnect is not None:
            self._reconnect.close()

    def error(self, error: KafkaError) -> None:
        """A client's `error_cb`."""
        if error.fatal():
            self._fatal = error
        elif error.code() in GONE:
            self.doubt()
        else:
            log.warning("Kafka client: %s", error.str())
            if error.code() == KafkaError._ALL_BROKERS_DOWN:
                self.check()

    def doubt(self) -> None:
        """A topic may be gone."""
        self._doubtful = True

    def check(self) -> None:
        """A client may be cut off for good."""
        if self._reconnect is not None:
            self._reconnect.check()

    def forget_fatal(self) -> None:
        """The producer that had given up is given up."""
        self._fatal = None

    @property
    def pending(self) -> bool:
        """Whether there is something to look into."""
        return self._fatal is not None or self._doubtful or (self._reconnect is not None and self._reconnect.due)

    def look_into(self, cluster: KafkaAdmin, plan: Plan) -> Collection[WorkerClient]:
        """Act on what was reported.

        Returns:
            the clients that are to be replaced.

        Raises:
            KafkaException: a client gave up.
            BrokerError: a topic was deleted.
        """
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise KafkaException(fatal)
        if self._doubtful:
            self._doubtful = False
            _check_topics(cluster, plan)
        return self._reconnect.dead() if self._reconnect is not None and self._reconnect.due else ()


def _check_topics(cluster: KafkaAdmin, plan: Plan) -> None:
    existing = cluster.topics()
    wanted = {*plan.partitions, *(topic.name for topic in plan.internal)}
    gone = sorted(topic for topic in wanted if topic not in existing)
    lost = [topic for topic in gone if topic in {log for logs in plan.changelogs.values() for log in logs.values()}]
    if lost and lost[0] not in plan.partitions:
        raise BrokerError(
            f"changelog '{lost[0]}' is gone: it was deleted while the application ran, and with it the state. Restore it with "
            f"its content, or run 'millpond reset' to process the inputs from the beginning."
        )
    if gone:
        raise BrokerError(
            f"topic '{gone[0]}' is gone: it was deleted while the application ran. Make it again, and if its "
            f"records were lost with it, run 'millpond reset' first."
        )
