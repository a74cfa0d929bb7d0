"""The requests that check whether brokers answer: one to any broker, and one to each that the application needs.

The brokers that an application needs lead a partition of one of its topics, or coordinate its commits. Each gets a
request for the end offset of one partition that it leads. Only its leader answers that, with the user's own rights.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Container, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec

from millpond.runtime.blockers import Blockers
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import Partition

from .broker_contact import BrokerContact
from .clients import CLIENT_DEFAULTS, transactional_id
from .clients import log as client_log
from .end_offsets import ask_offsets, offset_in
from .leading_brokers import BrokerCheck, asked_partitions, coordinating_partition, leaders_in
from .reconnect import COMMON_TOPIC, answers

__all__ = ("BrokerProbe", "make_contact")

_TRANSACTIONS = "__transaction_state"

_END: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
#: Checks between two lists of all topics, and between two looks at the leaders of the asked partitions.
_LIST_EVERY = 100
_LOOK_EVERY = 5
#: Failed checks in a row until the client is replaced: a new one has to connect to all brokers first.
_REPLACED_AFTER = 3


class BrokerProbe:
    """Asks brokers with a client of its own.

    It keeps a connection to each broker. If no broker answers, or one does not for some checks, it tries a new client,
    since a client may not reconnect to brokers that were down (see `reconnect.py`).

    Args:
        settings: properties of an admin client.
        topics: returns the topics that the application uses; none while they are not known.
        coordinated: the group and the transactional id, each with the internal topic of Kafka whose leaders
            coordinate them.
        now: returns the time of a clock, in seconds.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Callable[[], Collection[str]],
        coordinated: Mapping[str, str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._settings = settings
        self._topics = topics
        self._coordinated = coordinated
        self._client: AdminClient | None = None
        self._leaders: dict[str, dict[int, int]] = {}
        self._checks = self._failed = 0

    def any_answers(self, timeout_s: float) -> bool:
        """Return whether a broker answers within `timeout_s` seconds."""
        if self._client is not None and answers(self._client, COMMON_TOPIC, timeout_s):
            return True
        return answers(self._new_client(), COMMON_TOPIC, timeout_s)

    def each_answers(self, timeout_s: float) -> BrokerCheck:
        """Return which of the needed brokers answer within `timeout_s` seconds.

        None of them, while it is not known which brokers are needed.
        """
        if not (topics := self._topics()):
            return BrokerCheck(self._now(), {})
        client = self._client or self._new_client()
        self._know_leaders(client, topics, timeout_s)
        asked, asked_at = asked_partitions(self._leaders), self._now()
        try:
            answering = self._ask(client, asked, timeout_s)
        except KafkaException:
            answering = dict.fromkeys(asked, False)
        if all(answering.values()):
            self._failed = 0
            return BrokerCheck(asked_at, answering)
        self._failed += 1
        proven = None
        with contextlib.suppress(KafkaException):
            proven = self._look(client, topics, timeout_s)
        if self._failed % _REPLACED_AFTER == 0:
            self._new_client()
        # If that broker does answer, the client was too slow, which proves nothing about the others either.
        clear = proven is None or answering.get(proven, True)
        # Nothing waits for a former leader.
        leaders = asked_partitions(self._leaders)
        needed = {broker: answered for broker, answered in answering.items() if answered or broker in leaders}
        return BrokerCheck(asked_at, needed, clear)

    def _know_leaders(self, client: AdminClient, topics: Collection[str], timeout_s: float) -> None:
        """Ask who leads partitions, now and then; without an answer, with the next check."""
        try:
            if self._checks % _LIST_EVERY == 0:
                self._leaders = self._leaders_in(client.list_topics(timeout=timeout_s), topics)
            elif self._checks % _LOOK_EVERY == 0:
                self._look(client, topics, timeout_s)
        except KafkaException:
            return
        self._checks += 1

    @staticmethod
    def _ask(client: AdminClient, asked: Mapping[int, Partition], timeout_s: float) -> dict[int, bool]:
        if not asked:
            return {}
        found = ask_offsets(client, dict.fromkeys(asked.values(), _END), timeout_s)
        return {broker: _answered(found[partition]) for broker, partition in asked.items()}

    def _look(self, client: AdminClient, topics: Collection[str], timeout_s: float) -> int | None:
        """Ask who leads the asked partitions, and those that are asked instead if their leaders have moved.

        Returns:
            A broker that answered; None if there was nothing to ask.
        """
        answered: int | None = None
        known: set[str] = set()
        while stale := {each.topic for each in asked_partitions(self._leaders).values()} - known:
            for topic in sorted(stale):
                listing = client.list_topics(topic, timeout=timeout_s)
                answered = int(listing.orig_broker_id)
                self._leaders[topic] = self._leaders_in(listing, topics).get(topic, {})
            known |= stale
        return answered

    def _leaders_in(self, listing: ClusterMetadata, topics: Collection[str]) -> dict[str, dict[int, int]]:
        wanted: dict[str, Container[int] | None] = dict.fromkeys(sorted(topics))
        for name, internal in self._coordinated.items():
            if (found := listing.topics.get(internal)) is not None and found.partitions:
                wanted[internal] = (coordinating_partition(name, len(found.partitions)),)
        return leaders_in(listing, wanted)

    def _new_client(self) -> AdminClient:
        self._client = AdminClient(dict(self._settings), logger=client_log)
        return self._client


def _answered(request: Future[Any]) -> bool:
    """Return whether a leader answered a request for an end offset: an error of a broker is an answer, too."""
    try:
        offset_in(request)
    except KafkaException as error:
        return bool(error.args[0].code() >= 0)
    return True


def make_contact(config: Config, blockers: Blockers, topics: Callable[[], Collection[str]]) -> BrokerContact:
    """Return the check of a worker's brokers.

    Args:
        config: the worker's configuration. Without a coordinator, no task can move, and no broker is asked for itself.
        blockers: the worker's blockers.
        topics: returns the topics that the application uses; none while they are not known.
    """
    coordinated = {config.application_id: COMMON_TOPIC}
    if config.exactly_once:
        coordinated[transactional_id(config.application_id, config.worker_id)] = _TRANSACTIONS
    probe = BrokerProbe(
        config.admin_settings(CLIENT_DEFAULTS),
        topics if config.coordinator_url is not None else tuple,
        coordinated,
    )
    return BrokerContact(
        probe.any_answers,
        config.brokers_unreachable_timeout_ms / 1000,
        blockers,
        config.bootstrap_servers,
        each=probe.each_answers,
    )
