"""What the worker asks of the cluster besides reading and writing records: topics, and purging repartition topics."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, OffsetSpec
from confluent_kafka.cimpl import NewTopic

from millpond.errors import BrokerError, ConfigError, TopicError
from millpond.runtime.blockers import Blockers
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity, ask_configs, ask_ids, delete_retention_ms, is_only_compacted
from millpond.runtime.topics.plan import TopicSpec

from .clients import log as client_log
from .reconnect import answers

__all__ = ("KafkaAdmin",)

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRY_S = 5.0
_PAUSE_S = 0.05
#: A partition whose broker is away for a moment is unknown to the client, like one that does not exist.
_UNKNOWN_S = 30.0
#: Why there is no connection although there is a network: what happened, and what to look at. The first one counts.
_OBSTACLES = {
    KafkaError._AUTHENTICATION: (
        "does not accept this application's credentials",
        "'security.protocol', 'sasl.mechanism' and the credentials",
    ),
    KafkaError._SSL: ("cannot be talked to over TLS", "'security.protocol' and the settings that begin with 'ssl.'"),
    KafkaError._RESOLVE: ("is not to be found", "the host names in 'bootstrap.servers'"),
}
_ABOUT_SECURITY = re.compile(r"\bSSL\b|security\.protocol")
#: What a client says first, where it was, and last, how often: neither is the same twice.
_BESIDES = re.compile(r"^\S+: | \(after [^()]*(\([^()]*\)[^()]*)*\)$")
_UNKNOWN = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})


class KafkaAdmin:
    """The admin side of one Kafka cluster.

    Attributes:
        id: of the cluster, as its brokers told it last; "" while none has. May be read from any thread.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | float],
        *,
        patience: timedelta,
        stopping: Callable[[], bool],
        waiting: Blockers | None = None,
    ) -> None:
        """Connect lazily.

        Args:
            settings: librdkafka settings of the admin client.
            patience: how long to wait for a cluster that does not answer.
            stopping: asked while waiting; True gives up at once.
            waiting: told while a cluster is waited for.

        Raises:
            ConfigError: no client can be made of the settings; a certificate or a key is damaged.
        """
        self.id = ""
        self._settings = settings
        try:
            self._admin = self._connected()
        except KafkaException as error:
            raise ConfigError(
                f"no Kafka client can be made of the settings ({error.args[0].str()}). Check those that begin with 'ssl.' "
                "and 'sasl.', and the files that they name."
            ) from error
        self._answered = False
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._patience_s = patience.total_seconds()
        self._stopping = stopping
        self._waiting = waiting if waiting is not None else Blockers()
        self._met: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._purging: list[Future[object]] = []

    def _connected(self) -> AdminClient:
        given: dict[str, Any] = {**self._settings, "error_cb": self._noted}
        return AdminClient(given, logger=client_log)

    def unanswered(self) -> None:
        """A question that passes was not answered: one that was before may never be again (see `lifelines.py`)."""
        if self._answered:
            self._admin, self._answered = self._connected(), False

    def answers(self, topic: str, timeout_s: float) -> bool:
        """Whether a new client gets an answer from a broker within `timeout_s`. Safe from any thread."""
        return answers(AdminClient(dict(self._settings), logger=client_log), topic, timeout_s)

    def topics(self) -> dict[str, int]:
        """Every topic with its partition count. Waits for a broker that is down, within the patience.

        Raises:
            BrokerError: nobody answered in time.
        """
        deadline = time.monotonic() + self._patience_s
        warned = False
        while True:
            try:
                listing = self._admin.list_topics(timeout=min(_TRY_S, max(0.1, deadline - time.monotonic())))
            except KafkaException as error:
                unreachable = self._unreachable(error.args[0])
                if self._stopping() or time.monotonic() >= deadline or not _passes(error):
                    raise unreachable from error
                self.unanswered()
                self._waiting.begins("brokers", unreachable)
                if not warned:
                    log.warning("waiting for Kafka at %s: %s", self._servers, error.args[0].str())
                    warned = True
            else:
                self._answered = True
                self._waiting.ends("brokers")
                self._counts = self._read(listing)
                return dict(self._counts)

    def look(self) -> dict[str, int] | None:
        """Every topic with its partition count, None when no broker answers at once. Safe from any thread."""
        try:
            listing = self._admin.list_topics(timeout=_TRY_S)
        except KafkaException:
            return None
        return self._read(listing)

    def _read(self, listing: ClusterMetadata) -> dict[str, int]:
        """Take in the cluster's id; every topic with its partition count."""
        self.id = listing.cluster_id or self.id
        return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}

    def _noted(self, error: KafkaError) -> None:
        code = error.code()
        if code == KafkaError._TRANSPORT and _ABOUT_SECURITY.search(error.str()):
            code = KafkaError._SSL
        if code in _OBSTACLES:
            self._met.setdefault(code, _BESIDES.sub("", error.str()))

    def _unreachable(self, error: KafkaError) -> BrokerError:
        """Why the cluster does not answer: what the connections met tells more than that there is none."""
        before, self._met = self._met, {}
        self._admin.poll(0)  # calls `_noted`
        # Of two words for the same thing the first one is kept: nothing has changed.
        self._met = {code: before.get(code, text) for code, text in self._met.items()}
        for code, (what, settings) in _OBSTACLES.items():
            if code in self._met:
                return BrokerError(f"Kafka at '{self._servers}' {what} ({self._met[code]}). Check {settings}.")
        return BrokerError(
            f"no answer from Kafka at '{self._servers}' ({error.str()}). Check 'bootstrap.servers' and that the broker "
            f"runs and listens there."
        )

    def partition_count(self, topic: str) -> int:
        """The partition count of a topic, looked up once.

        Raises:
            TopicError: there is no such topic.
        """
        if topic not in self._counts:
            self.topics()
        try:
            return self._counts[topic]
        except KeyError:
            raise TopicError(f"topic '{topic}' does not exist: create it, or correct the name.") from None

    def ensure(self, topics: Iterable[TopicSpec], existing: Mapping[str, int], replication_factor: int) -> list[str]:
        """Create the internal topics that are missing; check those that exist.

        Returns:
            The names of the topics made.

        Raises:
            TopicError: an internal topic exists with another partition count.
            BrokerError: the broker refused to create one.
        """
        new: list[NewTopic] = []
        for topic in topics:
            count = existing.get(topic.name)
            if count is None:
                new.append(NewTopic(topic.name, topic.partitions, replication_factor, config=dict(topic.config)))
            elif count != topic.partitions:
                raise TopicError(
                    f"internal topic '{topic.name}' has {count} partitions, but the topology needs {topic.partitions}: "
                    f"the inputs were resized, or another application uses this application.id. Restore the old count, "
                    f"or run 'millpond reset' and start from the inputs again."
                )
        for name, future in (self._admin.create_topics(new) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise BrokerError(f"cannot create internal topic '{name}': {error.args[0].str()}.") from error
            log.info("created topic %s", name)
        self._await_leaders([topic.topic for topic in new])
        for topic in topics:
            self._counts[topic.name] = topic.partitions
        return [topic.topic for topic in new]

    def _await_leaders(self, topics: Sequence[str]) -> None:
        waiting = set(topics)
        deadline = time.monotonic() + self._patience_s
        while waiting:
            listing = self._admin.list_topics(timeout=_TRY_S).topics
            waiting = {
                name
                for name in waiting
                if name not in listing or any(each.leader < 0 for each in listing[name].partitions.values())
            }
            if waiting and (self._stopping() or time.monotonic() >= deadline):
                raise BrokerError(f"topic '{min(waiting)}' has no leader yet: check the brokers.")

    def ranges(self, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        """The first offset kept, and the offset after the last record, of partitions. Safe from any thread.

        Raises:
            BrokerError: nobody answered in time.
        """
        if not partitions:
            return {}
        wanted = list(partitions)

        def ask() -> dict[Partition, tuple[int, int]]:
            first = self._list_offsets(wanted, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
            end = self._list_offsets(wanted, OffsetSpec.latest())  # type: ignore[no-untyped-call]
            return {each: (first[each], end[each]) for each in wanted}

        return self._patiently(ask, "where topics begin and end")

    def facts(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """What each of these topics is. Safe from any thread.

        Raises:
            BrokerError: nobody answered in time, or there is no such topic.
        """
        if not topics:
            return {}

        def ask() -> dict[str, TopicIdentity]:
            admin = self._admin
            ids = ask_ids(admin, topics, _TRY_S)
            configs = ask_configs(admin, topics, _TRY_S)
            return {
                name: TopicIdentity(
                    ids[name], delete_retention_ms(found := configs.get(name)), is_only_compacted(found)
                )
                for name in topics
            }

        return self._patiently(ask, "what topics are")

    def max_message_bytes(self, topic: str) -> int | None:
        """The largest batch, in bytes, that a topic takes; None where that cannot be found out now."""
        try:
            found = ask_configs(self._admin, [topic], _TRY_S).get(topic, {}).get("max.message.bytes")
        except KafkaException:
            return None
        return None if found is None else int(found)

    def _patiently(self, ask: Callable[[], T], what: str) -> T:
        """Ask until there is an answer.

        Raises:
            BrokerError: nobody answered within the patience, or the answer is a refusal.
        """
        deadline = time.monotonic() + self._patience_s
        unknown_until = time.monotonic() + _UNKNOWN_S
        while True:
            try:
                answer = ask()
            except KafkaException as error:
                code = error.args[0].code()
                passing = _passes(error) or (code in _UNKNOWN and time.monotonic() < unknown_until)
                if self._stopping() or not passing or time.monotonic() >= deadline:
                    raise BrokerError(
                        f"cannot read {what}: {error.args[0].str()}. Check that the brokers are up."
                    ) from error
                # The client keeps to the leaders it knew until all topics are looked up again.
                if not answers(self._admin, None, _TRY_S):
                    self.unanswered()
                time.sleep(_PAUSE_S)
            else:
                self._answered = True
                return answer

    def ask_ends(self, partitions: Collection[Partition]) -> dict[Partition, Future[Any]]:
        """Ask for the offsets after the last committed records, without waiting; each result has it as `offset`."""
        asked = self._admin.list_offsets(
            {
                TopicPartition(each.topic, each.partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
                for each in partitions
            },
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_TRY_S,
        )
        return {Partition(each.topic, each.partition): found for each, found in asked.items()}

    def _list_offsets(self, partitions: Sequence[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        admin = self._admin  # another one may take its place meanwhile: this one has to live until it has answered
        asked = admin.list_offsets(
            {TopicPartition(each.topic, each.partition): spec for each in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=_TRY_S,
        )
        return {Partition(each.topic, each.partition): int(found.result().offset) for each, found in asked.items()}

    def purge(self, positions: Mapping[tuple[str, int], int]) -> bool:
        """Delete consumed records of repartition topics, without waiting; what fails is tried again with the next ones.

        Returns:
            whether it was asked for: there is one request in flight at a time.
        """
        if not all(future.done() for future in self._purging):
            return False
        if any(future.exception() for future in self._purging):
            self.unanswered()
        self._purging = []
        if not positions:
            return False
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        self._purging = list(self._admin.delete_records(wanted).values())
        return True


def _passes(error: KafkaException) -> bool:
    cause = error.args[0]
    return cause.retriable() or cause.code() in (
        KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE,
        KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet where the partition ends (KIP-207)
        KafkaError._NOENT,  # no partition has a leader at the moment
    )  # fmt: skip
