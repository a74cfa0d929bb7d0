"""The worker's admin client: topics, their offsets and configuration, and purging repartition topics."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from millpond.errors import BrokerError, ConfigError, TopicError
from millpond.runtime import error_codes
from millpond.runtime.blockers import Blockers
from millpond.runtime.error_codes import Kind, Request, kind_of, may_repeat
from millpond.runtime.missing_rights import Access, Operation, Resource
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.topics.identity import TopicIdentity, existing_ids, identity_of, topic_configs, topic_ids
from millpond.runtime.topics.plan import TopicSpec, check_counts

from .clients import log as client_log
from .dry_run import new_topics
from .end_offsets import ask_offsets, offset_at, read_offsets
from .purging import Purges
from .reconnect import answers
from .rights import errors_of, may_not_be_seen, not_created, try_unseen, unseen, without_right

__all__ = ("KafkaAdmin",)

log: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

_REQUEST_TIMEOUT_S = 5.0
#: How long the first request of a lookup may take. After a request without an answer a new client sends the next one,
#: which may take twice as long: a fixed limit would discard every new client where connecting takes longer than it.
_FIRST_TIMEOUT_S = 2.0
_LONGEST_TIMEOUT_S = 20.0
#: The client's timer may end some milliseconds before the timeout.
_NEARLY = 0.9
_LOGGED_AFTER_S = 5.0
_PAUSE_S = 0.05
#: Reasons why connections fail although the network works, each with what to check. The first one counts.
_CONNECTION_PROBLEMS = {
    error_codes.AUTHENTICATION: (
        "rejects this application's credentials",
        "'security.protocol', 'sasl.mechanism' and the credentials",
    ),
    error_codes.SSL: ("is not reachable over TLS", "'security.protocol' and the settings that begin with 'ssl.'"),
    error_codes.RESOLVE: ("cannot be resolved", "the host names in 'bootstrap.servers'"),
}
_ABOUT_SECURITY = re.compile(r"\bSSL\b|security\.protocol")
#: The client's prefix with the broker, and its suffix with counts, which make each message of a problem different.
_VARYING_PARTS = re.compile(r"^\S+: | \(after [^()]*(\([^()]*\)[^()]*)*\)$")


def _more_telling(first: str, other: str) -> str:
    """Return the first of two texts, unless only the other one tells how the TLS handshake failed."""
    return other if "handshake" in other and "handshake" not in first else first


class KafkaAdmin:
    """The admin client of one Kafka cluster.

    Attributes:
        id: the id of the cluster, as last received from a broker; empty before. May be read from any thread.
        access: names the user in sentences about missing rights.
        on_listing: called with each list of the cluster's topics, in any thread.
    """

    def __init__(
        self,
        settings: Mapping[str, str | int | float],
        *,
        patience: timedelta,
        stopping: Callable[[], bool],
        blockers: Blockers | None = None,
    ) -> None:
        """Make the client. It connects with the first request.

        Args:
            settings: the client's properties.
            patience: how long to retry if no broker answers.
            stopping: returns whether to give up at once; called while waiting.
            blockers: the worker's blockers, to which unreachable brokers are added.

        Raises:
            ConfigError: librdkafka rejects the properties, for example because of a damaged certificate or key.
        """
        self.id: str = ""
        self.access: Access = Access.of(settings)
        self.on_listing: Callable[[ClusterMetadata], None] = lambda _listing: None
        self._settings = settings
        try:
            self._admin = self._new_client()
        except KafkaException as error:
            raise ConfigError(
                f"the Kafka client rejects its settings ({error.args[0].str()}). Check those that begin with 'ssl.' "
                "and 'sasl.', and the files that they name."
            ) from error
        self._answered = False
        self._servers = str(settings.get("bootstrap.servers", ""))
        self._patience_s = patience.total_seconds()
        self._stopping = stopping
        self._blockers = blockers if blockers is not None else Blockers()
        self._connection_errors: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._without_config: set[str] = set()
        self._purges = Purges(self.unanswered, self.access)

    def _new_client(self) -> AdminClient:
        given: dict[str, Any] = {**self._settings, "error_cb": self._note_error}
        return AdminClient(given, logger=client_log)

    def unanswered(self) -> None:
        """Replace the client after a request without an answer: it may never reconnect (see `reconnect.py`)."""
        if self._answered:
            self._admin, self._answered = self._new_client(), False

    def _replace(self, silent: AdminClient) -> None:
        """Replace a client that gave no answer, unless another thread has already done so."""
        if self._admin is silent:
            self._admin, self._answered = self._new_client(), False

    def answers(self, topic: str, timeout_s: float) -> bool:
        """Return whether a new client gets an answer from a broker within `timeout_s`. Safe from any thread."""
        return answers(AdminClient(dict(self._settings), logger=client_log), topic, timeout_s)

    def topics(self) -> dict[str, int]:
        """Return the partition count of every topic. Retries while no broker answers.

        Raises:
            BrokerError: no broker answered in time.
        """
        deadline = time.monotonic() + self._patience_s
        warned = False
        while True:
            try:
                timeout_s = min(_REQUEST_TIMEOUT_S, max(0.1, deadline - time.monotonic()))
                listing = self._admin.list_topics(timeout=timeout_s)
            except KafkaException as error:
                unreachable = self._unreachable(error.args[0])
                if self._stopping() or time.monotonic() >= deadline or not may_repeat(error.args[0], Request.READ):
                    raise unreachable from error
                self.unanswered()
                self._blockers.add("brokers", unreachable)
                if not warned:
                    log.warning("%s Retrying.", unreachable)
                    warned = True
            else:
                self._answered = True
                self._blockers.remove("brokers")
                self._counts = self._read(listing)
                return dict(self._counts)

    def try_topics(self, known: Mapping[str, int]) -> dict[str, int] | None:
        """Return the partition count of every topic; None if no broker answers within 5 s. Safe from any thread.

        Args:
            known: partition counts to return for topics that the user may not see any more.
        """
        admin = self._admin
        try:
            found = self._read(admin.list_topics(timeout=_REQUEST_TIMEOUT_S))
            hidden = unseen(admin, known.keys() - found.keys(), _REQUEST_TIMEOUT_S)
        except KafkaException:
            return None
        return found | {topic: known[topic] for topic in hidden}

    def check_seen(self, topics: Mapping[str, Operation]) -> None:
        """Check that topics which are missing in a list are not only hidden from this application's user.

        Args:
            topics: the topics, each with the operation that the application needs.

        Raises:
            TopicError: whether a topic exists may not be seen.
            BrokerError: no broker answered in time.
        """
        if hidden := self.ask(lambda admin, timeout_s: unseen(admin, topics, timeout_s), "which topics exist"):
            raise may_not_be_seen({each: topics[each] for each in hidden}, self.access)

    def _read(self, listing: ClusterMetadata) -> dict[str, int]:
        """Store the cluster's id, and return the partition count of every topic."""
        self.id = listing.cluster_id or self.id
        self.on_listing(listing)
        return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}

    def _note_error(self, error: KafkaError) -> None:
        code = error.code()
        if code == error_codes.TRANSPORT and _ABOUT_SECURITY.search(error.str()):
            code = error_codes.SSL
        if code in _CONNECTION_PROBLEMS:
            text = _VARYING_PARTS.sub("", error.str())
            self._connection_errors[code] = _more_telling(self._connection_errors.get(code, text), text)

    def _unreachable(self, error: KafkaError) -> BrokerError:
        """Return the reason why the cluster does not answer: a connection error if known, else the request's error."""
        before, self._connection_errors = self._connection_errors, {}
        self._admin.poll(0)  # calls `_note_error`
        # Keep the first of several texts for the same code: a changed text would look like news.
        self._connection_errors = {
            code: _more_telling(before.get(code, text), text) for code, text in self._connection_errors.items()
        }
        for code, (what, settings) in _CONNECTION_PROBLEMS.items():
            if code in self._connection_errors:
                text = self._connection_errors[code]
                return BrokerError(f"Kafka at '{self._servers}' {what} ({text}). Check {settings}.")
        return BrokerError(
            f"no answer from Kafka at '{self._servers}' ({error.str()}). Check 'bootstrap.servers', and that a broker "
            f"listens there."
        )

    def partition_count(self, topic: str) -> int:
        """Return the partition count of a topic to write to, which is looked up once.

        Raises:
            TopicError: the topic does not exist.
        """
        if topic not in self._counts:
            self.topics()
        try:
            return self._counts[topic]
        except KeyError:
            self.check_seen({topic: Operation.WRITE})
            raise TopicError(f"topic '{topic}' does not exist: create it, or correct the name.") from None

    def ensure(self, topics: Collection[TopicSpec], existing: Mapping[str, int], replication_factor: int) -> list[str]:
        """Create the internal topics that are missing, and check those that exist.

        Returns:
            The names of the created topics.

        Raises:
            TopicError: an internal topic has another partition count than the plan.
            BrokerError: the broker rejected the creation of a topic, or a new topic got no leader in time.
        """
        check_counts(topics, existing)
        new = new_topics(topics, existing, replication_factor)
        for name, future in (self._admin.create_topics(new) if new else {}).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise not_created(
                        f"cannot create internal topic '{name}'", name, error.args[0], self.access
                    ) from error
            log.info("topic %s: created", name)
        self._await_leaders([topic.topic for topic in new])
        for topic in topics:
            self._counts[topic.name] = topic.partitions
        return [topic.topic for topic in new]

    def _await_leaders(self, topics: Sequence[str]) -> None:
        waiting = set(topics)
        deadline = time.monotonic() + self._patience_s
        while waiting:
            listing = self._admin.list_topics(timeout=_REQUEST_TIMEOUT_S).topics
            waiting = {
                name
                for name in waiting
                if name not in listing or any(each.leader < 0 for each in listing[name].partitions.values())
            }
            if waiting and (self._stopping() or time.monotonic() >= deadline):
                self.check_seen(dict.fromkeys(waiting, Operation.DESCRIBE))
                raise BrokerError(f"topic '{min(waiting)}' was created but has no leader yet: check the brokers.")

    def ranges(self, partitions: Collection[Partition]) -> dict[Partition, tuple[int, int]]:
        """Return the first offset, and the offset after the last record, of each partition. Safe from any thread.

        Raises:
            BrokerError: no broker answered in time.
        """
        if not partitions:
            return {}
        wanted = list(partitions)

        def request(admin: AdminClient, timeout_s: float) -> dict[Partition, tuple[int, int]]:
            first = read_offsets(admin, wanted, OffsetSpec.earliest(), timeout_s)  # type: ignore[no-untyped-call]
            end = read_offsets(admin, wanted, OffsetSpec.latest(), timeout_s)  # type: ignore[no-untyped-call]
            return {each: (first[each], end[each]) for each in wanted}

        return self.ask(request, "the first and last offsets of topics", {each.topic for each in wanted})

    def offsets_at(self, times: Mapping[Partition, int]) -> dict[Partition, int | None]:
        """Return the offset of the first record from a time on, in epoch ms, of each partition. Safe from any thread.

        None stands for a partition without such a record.

        Raises:
            BrokerError: no broker answered in time.
        """
        if not times:
            return {}

        def request(admin: AdminClient, timeout_s: float) -> dict[Partition, int | None]:
            specs = {each: OffsetSpec.for_timestamp(time_ms) for each, time_ms in times.items()}
            return {each: offset_at(found) for each, found in ask_offsets(admin, specs, timeout_s).items()}

        return self.ask(request, "the offsets of records by their time", {each.topic for each in times})

    def facts(self, topics: Collection[str]) -> dict[str, TopicIdentity]:
        """Return the identity of each topic. Safe from any thread.

        Raises:
            BrokerError: no broker answered in time, or a topic does not exist.
        """
        if not topics:
            return {}

        def request(admin: AdminClient, timeout_s: float) -> dict[str, TopicIdentity]:
            ids = topic_ids(admin, topics, timeout_s)
            configs = topic_configs(admin, topics, timeout_s)
            self._warn_of_unknown(set(topics) - configs.keys())
            return {name: identity_of(ids[name], configs.get(name)) for name in topics}

        return self.ask(request, "the ids and configurations of topics", topics)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the id of each topic, empty if brokers have no ids. Safe from any thread.

        Raises:
            BrokerError: no broker answered in time, or a topic does not exist.
        """
        if not topics:
            return {}
        return self.ask(lambda admin, timeout_s: topic_ids(admin, topics, timeout_s), "the ids of topics", topics)

    def try_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of those topics that a broker returns within 5 s. Safe from any thread."""
        return existing_ids(self._admin, topics, _REQUEST_TIMEOUT_S)

    def configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the configuration of each topic, without topics whose configuration may not be read.

        Raises:
            BrokerError: no broker answered in time.
        """
        return self.ask(
            lambda admin, timeout_s: topic_configs(admin, topics, timeout_s), "the configurations of topics"
        )

    def _warn_of_unknown(self, topics: Collection[str]) -> None:
        """Log once for each topic that its configuration may not be read."""
        if denied := sorted(set(topics) - self._without_config):
            self._without_config.update(denied)
            log.warning(
                "changelogs %s: their configuration may not be read, so local rows that are behind them are restored "
                "from the beginning: the topics may have lost deletions. %s",
                ", ".join(denied), self.access.lacks(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, *denied),
            )  # fmt: skip

    def groups(self) -> list[str]:
        """Return the consumer groups, without those of brokers that do not answer.

        Raises:
            BrokerError: no broker answered in time.
        """
        return self.ask(
            lambda admin, timeout_s: [
                each.group_id for each in admin.list_consumer_groups(request_timeout=timeout_s).result().valid
            ],
            "the consumer groups",
        )

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str] | None = None) -> None:
        """Create a topic that is not internal, with these settings, and wait until it has leaders.

        Raises:
            BrokerError: the broker rejected it, or it got no leader in time.
        """
        try:
            self._admin.create_topics([NewTopic(topic, partitions, replicas, config=config or {})])[topic].result()
        except KafkaException as error:
            raise not_created(f"topic '{topic}' cannot be created", topic, error.args[0], self.access) from error
        self._await_leaders([topic])

    def without_right(self, topics: Collection[str], operation: Operation) -> list[str]:
        """Return the topics for which the user lacks Read or Write, as far as brokers answer within a second."""
        return without_right(self._admin, topics, AclOperation[operation.name], 1.0)

    def max_message_bytes(self, topic: str) -> int | None:
        """Return the largest batch that a topic accepts, in bytes; None if that cannot be read now."""
        try:
            found = topic_configs(self._admin, [topic], _REQUEST_TIMEOUT_S).get(topic, {}).get("max.message.bytes")
        except KafkaException:
            return None
        return None if found is None else int(found)

    def ask(self, request: Callable[[AdminClient, float], T], what: str, topics: Collection[str] = ()) -> T:
        """Send a request that reads, and repeat it until a broker answers. Safe from any thread.

        Args:
            request: sends it with a client, and waits for the given number of seconds.
            what: what the request reads, for the error.
            topics: the topics of the request, for an error about a missing right.

        Raises:
            BrokerError: no broker answered in time, or it rejected the request.
        """
        deadline = time.monotonic() + self._patience_s
        timeout_s = min(_FIRST_TIMEOUT_S, _REQUEST_TIMEOUT_S)
        began, logged = time.monotonic(), False
        while True:
            admin = self._admin  # another thread may replace it, but it must live until it has answered
            requested = time.monotonic()
            try:
                answer = request(admin, timeout_s)
            except KafkaException as error:
                waited = time.monotonic() - began
                repeated = may_repeat(error.args[0], Request.READ, waited)
                if self._stopping() or not repeated or time.monotonic() >= deadline:
                    cause = error.args[0]
                    hidden = (
                        try_unseen(self._admin, topics, _REQUEST_TIMEOUT_S) if kind_of(cause) is Kind.FORBIDDEN else ()
                    )
                    raise BrokerError(
                        f"cannot read {what}: {cause.str()}. {self.access.cure(cause, hidden, Operation.DESCRIBE)}"
                    ) from error
                if waited >= _LOGGED_AFTER_S and not logged:
                    logged = True
                    log.warning("%s: no answer for %.1f s (%s); retrying", what, waited, error.args[0].str())
                # The client keeps the leaders that it knew until all topics are listed again.
                if time.monotonic() - requested >= _NEARLY * timeout_s or not answers(admin, None, timeout_s):
                    self._replace(admin)
                    timeout_s = min(2 * timeout_s, _LONGEST_TIMEOUT_S)
                    # A client without leaders asks for them every 3 s, the first time often before it is connected.
                    answers(self._admin, None, timeout_s)
                time.sleep(_PAUSE_S)
            else:
                self._answered = True
                return answer

    def set_configs(self, values: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        """Set configuration entries of topics; return the error of each topic for which it failed."""
        resources = [
            ConfigResource(
                ResourceType.TOPIC,
                topic,
                incremental_configs=[
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in entries.items()
                ],
            )
            for topic, entries in values.items()
        ]
        asked = self._admin.incremental_alter_configs(resources, request_timeout=_REQUEST_TIMEOUT_S)
        return errors_of({str(each.name): asked[each] for each in asked}, self.access, Operation.ALTER_CONFIGS)

    def delete_before(self, offsets: Mapping[Partition, int]) -> dict[Partition, str]:
        """Delete the records before an offset of each partition; return the errors. Safe from any thread."""
        if not offsets:
            return {}
        asked = self._admin.delete_records(
            [TopicPartition(each.topic, each.partition, offset) for each, offset in offsets.items()],
            request_timeout=_REQUEST_TIMEOUT_S,
        )
        answered = {Partition(each.topic, each.partition): future for each, future in asked.items()}
        return errors_of(answered, self.access, Operation.DELETE, lambda each: each.topic)

    def ask_ends(self, partitions: Collection[Partition]) -> dict[Partition, Future[Any]]:
        """Request the offset after the last committed record of each partition, as `offset` of a future's result."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return ask_offsets(self._admin, dict.fromkeys(partitions, latest), _REQUEST_TIMEOUT_S, committed=True)

    def purge(self, positions: Mapping[tuple[str, int], int]) -> bool:
        """Delete consumed records of repartition topics, without waiting. The next call repeats failed deletions.

        Args:
            positions: by topic and partition, the offset below which to delete.

        Returns:
            Whether a request was sent. Only one is in flight at a time.
        """
        return self._purges.send(lambda: self._admin, positions)
