"""Errors of the Kafka clients: collected in their callbacks, handled by the worker's loop between two turns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from confluent_kafka import KafkaError, KafkaException

from millpond.errors import BrokerError
from millpond.runtime import error_codes
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import log
from millpond.runtime.kafka.reconnect import ReconnectCheck, WorkerClient
from millpond.runtime.topics.plan import Plan

__all__ = ("ClientErrors",)


class ClientErrors:
    """The errors of one worker's clients that are not handled yet."""

    def __init__(self) -> None:
        self._fatal: KafkaError | None = None
        self._topics_suspect = False
        self._reconnect: ReconnectCheck | None = None

    def watch(self, clients: Mapping[WorkerClient, Callable[[float], bool]], brokers: Callable[[float], bool]) -> None:
        """Start to detect clients that do not reconnect to brokers; the arguments are those of `ReconnectCheck`."""
        self._reconnect = ReconnectCheck(clients, brokers)

    def close(self) -> None:
        """Stop detecting clients that do not reconnect."""
        if self._reconnect is not None:
            self._reconnect.close()

    def on_error(self, error: KafkaError) -> None:
        """Record an error; the `error_cb` of all clients."""
        if error.fatal():
            self._fatal = error
        elif kind_of(error) is Kind.MISSING:
            self.suspect_topics()
        else:
            log.warning("Kafka client: %s", error.str())
            if error.code() == error_codes.ALL_BROKERS_DOWN:
                self.check_clients()

    def suspect_topics(self) -> None:
        """Record that a topic may have been deleted."""
        self._topics_suspect = True

    def check_clients(self) -> None:
        """Start to check whether all clients reconnect to brokers."""
        if self._reconnect is not None:
            self._reconnect.check()

    def forget_fatal(self) -> None:
        """Drop the fatal error of a producer that is being replaced."""
        self._fatal = None

    @property
    def pending(self) -> bool:
        """Whether errors are waiting to be handled."""
        return self._fatal is not None or self._topics_suspect or (self._reconnect is not None and self._reconnect.due)

    def handle(self, cluster: KafkaAdmin, plan: Plan) -> Collection[WorkerClient]:
        """Handle the recorded errors.

        Returns:
            The clients to replace.

        Raises:
            KafkaException: a client had a fatal error.
            BrokerError: a topic was deleted.
        """
        if self._fatal is not None:
            fatal, self._fatal = self._fatal, None
            raise KafkaException(fatal)
        if self._topics_suspect:
            self._topics_suspect = False
            _check_topics(cluster, plan)
        return self._reconnect.dead() if self._reconnect is not None and self._reconnect.due else ()


def _check_topics(cluster: KafkaAdmin, plan: Plan) -> None:
    existing = cluster.topics()
    wanted = {*plan.partitions, *(topic.name for topic in plan.internal)}
    deleted = sorted(topic for topic in wanted if topic not in existing)
    changelogs = {changelog for of_stores in plan.changelogs.values() for changelog in of_stores.values()}
    lost = [topic for topic in deleted if topic in changelogs]
    if lost and lost[0] not in plan.partitions:
        raise BrokerError(
            f"changelog '{lost[0]}' was deleted while the application ran, and the state with it. Restore the topic "
            f"with its content, or run 'millpond reset' to process the inputs from the beginning."
        )
    if deleted:
        raise BrokerError(
            f"topic '{deleted[0]}' was deleted while the application ran. Create it again; if its records are lost, "
            f"run 'millpond reset' first."
        )
