"""Topics that are deleted and created again are noticed by their ids, and nothing is skipped in silence."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import millpond as mp
from millpond.errors import TopicError, TopologyError
from millpond.protocol import Role
from millpond.runtime.commit.pipeline import CommitFailed, CommitPhase
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, check_metadata
from millpond.runtime.ownership.takeover import claimed
from millpond.runtime.tasks.topic_ids import INTERVAL_S, TopicIdWatch
from millpond.runtime.topics.identity import TopicIdentity, digest_of
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.restoring.global_scene import GlobalScene
from tests.runtime.worker_parts import Parts

A = TaskId(0, 0)
IN, CHANGELOG = Partition("in", 0), Partition("app-counts-changelog", 0)
FORMER = digest_of(["former"])
RESET = (
    "'millpond reset --application-id app --bootstrap-servers memory:1 --input-topics in --to-earliest' processes the "
    "inputs from their first records, and the same with --to-latest only new records"
)


def counted() -> Any:
    """A count with a changelog."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


def table() -> Any:
    """A table whose changelog is its input."""
    builder = mp.StreamsBuilder()
    builder.table("in", key=mp.String, value=mp.String, store="rows")
    return builder.build()


def copied() -> Any:
    """A topic copied to another: a task without state."""
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    return builder.build()


@pytest.fixture
def kafka() -> Kafka:
    """Five records in the input."""
    made = Kafka()
    for each in range(5):
        made.append("in", "a", str(each))
    return made


@pytest.fixture
def start(kafka: Kafka, tmp_path: Path) -> Iterator[Callable[..., Parts]]:
    """Start a worker that owns the task."""
    made: list[Parts] = []

    def started(topology: Any = None, worker: str = "w0", **more: Any) -> Parts:
        parts = Parts(kafka, topology or counted(), tmp_path / worker, {"in": 1}, worker, **more)
        made.append(parts)
        return parts

    yield started
    for each in made:
        each.close()


def committed(kafka: Kafka, parts: Parts, offset: int, topic: str) -> None:
    """Commit as a worker whose input had a topic id with this digest."""
    kafka.commit(IN, offset, OffsetMetadata("w0", 3, topology=parts.executor.topology, topic=topic))


@pytest.mark.parametrize("topology", [counted, table])
def test_a_former_topic_is_refused_with_the_choices_before_stores_are_opened(
    kafka: Kafka, start: Callable[..., Parts], topology: Any
) -> None:
    """The new topic is long enough for the offset, and only its id tells."""
    worker = start(topology())
    committed(kafka, worker, 3, FORMER)
    worker.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match=re.escape(RESET)) as raised:
        worker.settle()
    assert "topic 'in' was deleted and created again: the committed offset 3 of in-0 is in the former topic" in str(
        raised.value
    )
    assert worker.executor.running == []
    assert worker.executor.held[A].stores == {}
    assert kafka.committed(IN).offset == 3


def test_a_former_topic_is_refused_when_a_copy_becomes_active(kafka: Kafka, start: Callable[..., Parts]) -> None:
    """Its stores are open already; the rest is as for a task that starts."""
    worker = start()
    worker.executor.hold([A], Role.STANDBY)
    worker.settle()
    committed(kafka, worker, 3, FORMER)
    worker.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match="deleted and created again"):
        worker.settle()
    assert worker.executor.running == []


@pytest.mark.parametrize("id", ["in", ""], ids=["known", "brokers without ids"])
def test_an_unknown_topic_is_adopted_with_the_next_commit(kafka: Kafka, start: Callable[..., Parts], id: str) -> None:
    """The offset is of a worker of an earlier version, of Kafka Streams, or of a reset."""
    kafka.facts_of["in"] = TopicIdentity(id, None)
    worker = start()
    committed(kafka, worker, 3, "")
    worker.executor.hold([A], Role.ACTIVE)
    worker.settle()
    assert worker.committer.needed() == bool(id)
    if id:
        worker.commit()
    assert kafka.committed(IN).offset == 3
    assert kafka.committed(IN).metadata.topic == digest_of([id])


def test_a_topic_of_which_nothing_was_read_may_be_created_again(kafka: Kafka, start: Callable[..., Parts]) -> None:
    """At offset 0 no record can be skipped, so the commit names no topic."""
    kafka.logs.clear()
    worker = start()
    worker.own(A)
    worker.executor.running[0].commit_needed = True
    worker.commit()
    assert kafka.committed(IN).metadata.owner == "w0"
    assert kafka.committed(IN).metadata.topic == ""


def test_the_same_topic_that_is_shorter_has_lost_records(kafka: Kafka, start: Callable[..., Parts]) -> None:
    """The message names the lost records, and does not say that a person deleted the topic."""
    worker = start()
    committed(kafka, worker, 9, digest_of(["in"]))
    worker.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match=re.escape(RESET)) as raised:
        worker.settle()
    assert "brokers have lost records 5 to 8, as in an unclean leader election" in str(raised.value)
    assert "deleted" not in str(raised.value)


def test_an_unknown_topic_that_is_shorter_counts_as_created_again(kafka: Kafka, start: Callable[..., Parts]) -> None:
    """Nothing tells which of both it is."""
    worker = start()
    committed(kafka, worker, 9, "")
    worker.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match="the committed offset of in-0 is 9, but the topic ends at 5: it was deleted"):
        worker.settle()


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.STANDBY])
def test_a_changelog_that_lost_records_is_refused_and_local_rows_stay(
    kafka: Kafka, running: Parts, start: Callable[..., Parts], role: Role
) -> None:
    """Its records are gone in an unclean leader election; the topic was not deleted, so a reset is not the cause."""
    rows = running.rows("counts")
    running.close()
    kafka.logs[CHANGELOG].pop()
    worker = start()
    worker.executor.hold([A], role)
    with pytest.raises(TopicError, match="changelog app-counts-changelog-0 ends at 0, but the local rows") as raised:
        worker.settle()
        worker.settle()
    assert "lost records 0 to 0" in str(raised.value)
    assert "created again" not in str(raised.value)
    assert worker.rows("counts") == rows != {}


class Watched:
    """A running worker whose topics are watched.

    Attributes:
        ids: the answer of the brokers.
        asked: the topics of each request.
    """

    def __init__(self, executor: Any, ids: Mapping[str, str]) -> None:
        self.ids = dict(ids)
        self.asked: list[set[str]] = []
        self.answers: list[Future[Mapping[str, str]]] = []
        self.watch = TopicIdWatch(executor, self._ask)
        self.now = 100.0

    def _ask(self, topics: Collection[str]) -> Future[Mapping[str, str]]:
        self.asked.append(set(topics))
        answer: Future[Mapping[str, str]] = Future()
        self.answers.append(answer)
        return answer

    def answer(self) -> None:
        """Answer the last request with the present ids, and let the watch handle that."""
        self.answers[-1].set_result(dict(self.ids))
        self.watch.turn(self.now)

    def poll(self) -> None:
        """Ask when it is due, and handle the answer."""
        self.now += INTERVAL_S
        self.watch.turn(self.now)
        self.answer()


@pytest.fixture
def running(start: Callable[..., Parts]) -> Parts:
    """A worker that has committed all five records."""
    worker = start()
    worker.own(A)
    worker.process()
    worker.commit()
    return worker


IDS = {"in": "in", "app-counts-changelog": "app-counts-changelog"}


def test_ids_of_inputs_and_changelogs_are_asked_for_every_ten_seconds(running: Parts) -> None:
    """One request for all topics. After an error that a new topic may have caused, the next one follows in a second."""
    made = Watched(running.executor, IDS)
    made.poll()
    assert made.asked == [set(IDS)]
    for tenth in range(99):
        made.watch.turn(made.now + tenth / 10)
    assert len(made.asked) == 1
    made.watch.hurry()
    made.watch.hurry()
    made.watch.turn(made.now + 0.9)
    assert len(made.asked) == 1
    made.watch.turn(made.now + 1.0)
    assert len(made.asked) == 2
    made.answer()
    running.executor.drop([A])
    made.now += 100
    made.watch.turn(made.now)
    assert len(made.asked) == 2, "a worker without tasks has no topics"


def test_no_commit_follows_when_a_new_id_is_noticed(kafka: Kafka, running: Parts) -> None:
    """The commit in flight is given up with the worker, and the offsets stay those of the former topic."""
    made = Watched(running.executor, IDS)
    before = kafka.committed(IN)
    assert before.offset == 5
    kafka.remake("in", "new")
    for each in range(9):
        kafka.append("in", "a", f"new {each}")
    assert running.process() == 4, "the client continues in the new topic: the first five records are skipped"
    running.producer.delivers = False
    running.commit(through=False)
    assert running.committer.phase is not CommitPhase.IDLE
    made.ids["in"] = "new"
    with pytest.raises(TopicError, match="topic 'in' was deleted and created again while the application ran") as told:
        made.poll()
    assert RESET in str(told.value)
    running.close()
    assert kafka.committed(IN) == before


def test_a_commit_before_that_names_the_former_topic(kafka: Kafka, running: Parts, start: Callable[..., Parts]) -> None:
    """So the next start is refused although the offset is one of the new topic."""
    kafka.remake("in", "new")
    for each in range(9):
        kafka.append("in", "a", f"new {each}")
    running.process()
    running.commit()
    assert kafka.committed(IN).offset == 9
    assert kafka.committed(IN).metadata.topic == digest_of(["in"])
    later = start(worker="w1")
    later.executor.registrar.take_over_now("w0", {A: "w1"})
    assert kafka.committed(IN).metadata.topic == digest_of(["in"]), "a take-over carries it on"
    later.executor.hold([A], Role.ACTIVE)
    with pytest.raises(TopicError, match="deleted and created again"):
        later.settle()


def test_a_changelog_with_a_new_id_ends_the_worker(running: Parts) -> None:
    """Rows that it writes from then on would not be enough to restore the store."""
    made = Watched(running.executor, IDS)
    made.ids["app-counts-changelog"] = "new"
    with pytest.raises(TopicError, match="changelog 'app-counts-changelog' was deleted and created again while"):
        made.poll()


@pytest.mark.parametrize("ids", [{}, {"in": "in"}, IDS], ids=["no answer", "one topic is away", "all"])
def test_topics_without_an_answer_stay_as_they_are(running: Parts, ids: Mapping[str, str]) -> None:
    """A broker may be away or not know a topic for a moment, and deleted topics are reported elsewhere."""
    Watched(running.executor, ids).poll()


def test_failed_requests_are_repeated(running: Parts) -> None:
    """The next one follows when it is due."""
    made = Watched(running.executor, IDS)
    made.watch.turn(made.now)
    made.answers[-1].set_exception(RuntimeError())
    made.watch.turn(made.now)
    made.poll()
    assert len(made.asked) == 2


def test_an_answer_that_a_lookup_has_overtaken_does_not_count(kafka: Kafka, running: Parts) -> None:
    """The request was sent for a former activation of the task."""
    made = Watched(running.executor, IDS)
    made.watch.turn(made.now)
    kafka.offsets[IN] = (0, "")  # a person reset the offsets meanwhile
    kafka.facts_of["in"] = TopicIdentity("new", None)
    running.executor.drop([A])
    running.own(A)
    made.answer()
    made.ids["in"] = "new"
    made.poll()


def test_a_global_store_is_rebuilt_from_a_topic_with_a_new_id(tmp_path: Path) -> None:
    """Its rows are those of the present topic on every worker, as after a restart."""
    scene = GlobalScene(tmp_path)
    worker = scene.run("w0", snapshots=False)
    executor = SimpleNamespace(globals=worker.stores, held={})
    made = Watched(executor, {"rates": "rates"})
    made.poll()
    scene.kafka.facts_of["rates"] = TopicIdentity("new", None)
    made.ids["rates"] = "new"
    with pytest.raises(CommitFailed, match="global store rates is being rebuilt: topic rates was deleted and created"):
        made.poll()
    made.poll()
    scene.end()


def test_metadata_without_room_for_the_topic_leaves_it_out() -> None:
    """An application that started without the digest still starts, and no metadata becomes larger than 4,096 bytes."""
    fits = []
    for count in range(300, 430):
        names = [f"KSTREAM-AGGREGATE-{each:010}" for each in range(count)]
        try:
            fits.append(check_metadata(A, names, "0123456789abcdef"))
        except TopologyError:
            break
    assert fits == sorted(fits, reverse=True)
    assert {*fits} == {True, False}


class Recreations(RuleBasedStateMachine):
    """Workers of this and of an earlier version, resets and new topics, in any order, beside a model of the records."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.kafka = Kafka()
        self.worker: Parts | None = None
        self.watched: Watched | None = None
        self.runs_on = ""
        """The topic that the running worker was activated with."""
        self.number = 0
        self.recreate(records=3)

    def teardown(self) -> None:
        self.stop()
        self.directory.cleanup()

    @property
    def id(self) -> str:
        return f"id {self.number}"

    @property
    def end(self) -> int:
        return len(self.kafka.logs.get(IN, ()))

    def known(self) -> str:
        return self.kafka.committed(IN).metadata.topic

    # The topic

    @rule(records=st.integers(1, 5))
    def produce(self, records: int) -> None:
        for _ in range(records):
            self.kafka.append("in", "k", "v")

    @rule(records=st.integers(0, 9))
    def recreate(self, records: int) -> None:
        self.number += 1
        self.kafka.remake("in", self.id)
        self.produce(records)

    # Offsets from elsewhere: these may leave the topic unknown

    @precondition(lambda self: self.worker is None)
    @rule(share=st.floats(0, 1), owner=st.sampled_from(["w0", None]))
    def commit_without_a_topic(self, share: float, owner: str | None) -> None:
        """As a reset, or as a worker of an earlier version."""
        self.kafka.commit(IN, int(share * self.end), OffsetMetadata(owner))

    @precondition(lambda self: self.kafka.committed(IN).offset is not None)
    @rule(owner=st.sampled_from(["w0", "w1"]), topology=st.sampled_from(["this", "other"]))
    def claim(self, owner: str, topology: str) -> None:
        if self.worker is not None:
            return
        before = self.known()
        ((offset, metadata),) = claimed({IN: self.kafka.committed(IN)}, lambda _: 0, owner, 9, topology).values()
        self.kafka.commit(IN, offset, metadata)
        assert self.known() == before

    # A worker of this version

    @precondition(lambda self: self.worker is None)
    @rule()
    def start(self) -> None:
        """A worker starts where the offset says, or is refused because it is of a former topic."""
        before = self.kafka.committed(IN)
        owner = before.metadata.owner or "w0"
        self.worker = worker = Parts(self.kafka, copied(), Path(self.directory.name), {"in": 1, "out": 1}, owner)
        refused = False
        try:
            worker.own(A)
        except TopicError:
            refused = True
        former = bool(before.metadata.topic) and before.metadata.topic != digest_of([self.id])
        beyond = (before.offset or 0) > self.end
        assert refused == (former or beyond)
        assert self.known() == before.metadata.topic
        if refused:
            self.stop()
            return
        self.runs_on = self.id
        self.watched = Watched(worker.executor, {})
        assert worker.executor.running[0].inputs["in"].position == (before.offset or 0)

    @precondition(lambda self: self.worker is not None)
    @rule()
    def work(self) -> None:
        """It commits what it reads, for the topic with which it started, whatever topic there is now."""
        assert self.worker is not None
        before = self.kafka.committed(IN)
        self.worker.process()
        self.worker.commit()
        after = self.kafka.committed(IN)
        assert after.metadata.topic in (before.metadata.topic, digest_of([self.runs_on]))
        assert not before.metadata.topic or after.metadata.topic == before.metadata.topic
        assert after.metadata.topic or not after.offset

    @precondition(lambda self: self.worker is not None)
    @rule()
    def watch(self) -> None:
        """A new topic ends it without a commit."""
        assert self.watched is not None
        before = self.kafka.committed(IN)
        self.watched.ids["in"] = self.id
        if self.runs_on == self.id:
            self.watched.poll()
            return
        with pytest.raises(TopicError):
            self.watched.poll()
        self.stop()
        assert self.kafka.committed(IN) == before

    @rule()
    def stop(self) -> None:
        if self.worker is not None:
            self.worker.close()
            self.worker = None


Recreations.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
test_a_known_topic_is_never_replaced_and_nothing_is_skipped_in_silence = Recreations.TestCase
