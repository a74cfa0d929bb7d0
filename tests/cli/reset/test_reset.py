"""`millpond reset`: the preview, the changes, and when it is rejected."""

from __future__ import annotations

import asyncio
import functools
import io
import signal
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from millpond.cli.application import load_topology
from millpond.cli.dev.control_server import serving_session
from millpond.cli.dev.status import SessionStatus
from millpond.cli.reset.internal_topics import internal_topics
from millpond.cli.reset.plan import topics_of
from millpond.runtime.offsets.metadata import OffsetMetadata, encode_metadata
from millpond.state.rocksdb.directory_lock import DirectoryLock
from tests.cli.conftest import COUNT, Application, Ended, Millpond, Process
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker

names = st.text("abc-", min_size=1, max_size=6)


@given(st.lists(names, unique=True), names)
def test_only_internal_topics_of_the_application_are_deleted(others: list[str], application_id: str) -> None:
    """With any set of applications, no topic of another consumer group is deleted."""
    groups = {*others, application_id}
    topics = {f"{group}-{rest}" for group in groups for rest in ("x-changelog", "y-repartition", "output")}
    delete = internal_topics(topics, application_id, groups, None).own
    longer = [group for group in groups if group.startswith(f"{application_id}-")]
    assert all(topic.startswith(f"{application_id}-") for topic in delete)
    assert all(topic.endswith(("-changelog", "-repartition")) for topic in delete)
    assert not any(topic.startswith(f"{group}-") for topic in delete for group in longer)
    if not longer:
        assert {f"{application_id}-x-changelog", f"{application_id}-y-repartition"} <= set(delete)


def test_topology_names_the_topics_to_reset(application: Application) -> None:
    """With a topology, topics that only look like the application's are kept."""
    inputs, known = topics_of(load_topology(f"{application(COUNT)}:count"))
    assert inputs.topics == {"words"}
    existing = ["a-by-word-repartition", "a-counts-changelog", "a-old-changelog", "b-counts-changelog", "words"]
    found = internal_topics(existing, "a", [], known)
    assert found.own == ("a-by-word-repartition", "a-counts-changelog")
    assert found.unclear == ("a-old-changelog",)


class Scene:
    """An application that has run: committed offsets with an owner, internal topics, local state."""

    def __init__(self, broker: Broker, millpond: Millpond, app_id: str, topic: str, state: Path) -> None:
        self.broker = broker.bootstrap_servers
        self.millpond = millpond
        self.app_id = app_id
        self.topic = topic
        self.directory = state / app_id / "w0"
        self.directory.mkdir(parents=True)
        (self.directory / "lock").touch()
        (self.directory / "data").write_text("x")
        for name in ("store-changelog", "by-repartition"):
            kafka.create_topic(self.broker, f"{app_id}-{name}")
        self.commit(topic, {0: 3, 1: 2})
        self.commit(f"{app_id}-by-repartition", {0: 0})

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        metadata = encode_metadata(OffsetMetadata(owner="w0", epoch=1))
        given = [TopicPartition(topic, each, offset, metadata=metadata) for each, offset in offsets.items()]
        kafka.commit_offsets(self.broker, self.app_id, given)

    def reset(self, *more: object) -> Ended:
        return self.millpond(
            "reset", "--application-id", self.app_id, "--bootstrap-servers", self.broker, "--input-topics", self.topic,
            "--state-dir", self.directory.parent.parent, *more,
        )  # fmt: skip

    def offsets(self) -> dict[int, int]:
        return {
            each: offset for each, (offset, _) in kafka.committed_offsets(self.broker, self.app_id, self.topic).items()
        }

    def internal(self) -> set[str]:
        return kafka.topic_names(self.broker, prefix=f"{self.app_id}-")


@pytest.fixture
def scene(
    broker: Broker, millpond: Millpond, app_id: str, create_topic: CreateTopic, tmp_path: Path
) -> Iterator[Scene]:
    topic = create_topic("input", partitions=2)
    for partition in (0, 1):
        kafka.produce(
            broker.bootstrap_servers, topic, [(None, str(n), 1_700_000_000_000 + n * 1000, partition) for n in range(5)]
        )
    yield Scene(broker, millpond, app_id, topic, tmp_path / "state")


def test_a_dry_run_shows_everything_and_changes_nothing(scene: Scene) -> None:
    """Offsets, topics and directories are shown, and not changed."""
    before = scene.offsets(), scene.internal()
    ended = scene.reset("--dry-run")
    assert ended.status == 0
    for told in (
        scene.topic,
        f"{scene.app_id}-store-changelog",
        f"{scene.app_id}-by-repartition",
        str(scene.directory),
        "dry run",
    ):
        assert told in ended.out
    assert (scene.offsets(), scene.internal()) == before
    assert (scene.directory / "data").exists()


def test_a_reset_application_starts_over(scene: Scene) -> None:
    """Offsets start over without an owner, internal topics and state are deleted; a second reset has nothing to do."""
    ended = scene.reset("--yes")
    assert ended.status == 0, ended.err
    committed = kafka.committed_offsets(scene.broker, scene.app_id, scene.topic)
    assert {offset for offset, _ in committed.values()} == {0}
    assert not any(metadata for _, metadata in committed.values())
    assert scene.internal() == set()
    assert not scene.directory.parent.exists()
    assert "Nothing to do" in scene.reset("--yes").out


def test_offsets_of_a_former_topic_are_set_again_where_they_are(scene: Scene) -> None:
    """Otherwise the worker would refuse them for ever: only the metadata names the former topic."""
    scene.reset("--yes")
    metadata = encode_metadata(OffsetMetadata(owner="w0", epoch=1, topic="a digest"))
    given = [TopicPartition(scene.topic, each, 5, metadata=metadata) for each in (0, 1)]
    kafka.commit_offsets(scene.broker, scene.app_id, given)
    ended = scene.reset("--to-latest", "--yes")
    assert ended.status == 0, ended.err
    assert f"{scene.topic} was deleted and created again since these offsets were committed" in ended.out
    committed = kafka.committed_offsets(scene.broker, scene.app_id, scene.topic)
    assert [offset for offset, _ in committed.values()] == [5, 5]
    assert not any(metadata for _, metadata in committed.values())
    assert "Nothing to do" in scene.reset("--to-latest", "--yes").out


def test_inputs_restart_from_the_requested_offset(scene: Scene) -> None:
    """Each option sets offsets, within what the topic holds."""
    second = datetime.fromtimestamp(1_700_000_002, UTC)
    for arguments, expected in (
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 5, 1: 5}),
        (["--to-offset", "2"], {0: 2, 1: 2}),
        (["--to-offset", "99"], {0: 5, 1: 5}),
        (["--shift-by", "-1"], {0: 2, 1: 1}),
        (["--shift-by", "-99"], {0: 0, 1: 0}),
        (["--to-datetime", second.isoformat()], {0: 2, 1: 2}),
        (["--to-datetime", second.astimezone(timezone(timedelta(hours=5))).isoformat()], {0: 2, 1: 2}),
        (["--to-datetime", "2023-11-14T22:13:21.500"], {0: 2, 1: 2}),
        (["--to-datetime", "2099-01-01"], {0: 5, 1: 5}),
        (["--by-duration", "365000d"], {0: 0, 1: 0}),
        (["--by-duration", "1ms"], {0: 5, 1: 5}),
    ):
        scene.commit(scene.topic, {0: 3, 1: 2})
        assert scene.reset("--yes", *arguments).status == 0
        assert scene.offsets() == expected, arguments


def test_rejected_prompt_changes_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt is shown, and the answer no changes nothing."""
    before = scene.offsets(), scene.internal()
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ended = scene.reset()
    assert ended.status == 130
    assert "Continue?" in ended.err
    assert (scene.offsets(), scene.internal()) == before


def test_a_worker_on_this_machine_is_noticed(scene: Scene) -> None:
    """The lock on its state directory shows it; even with --force its state is not deleted."""
    lock = DirectoryLock(scene.directory)
    try:
        ended = scene.reset("--yes")
        assert ended.status == 1
        assert "seems to be running" in ended.err
        assert str(scene.directory) in ended.err
        assert scene.offsets() == {0: 3, 1: 2}
        assert scene.reset("--yes", "--force").status == 1
        assert (scene.directory / "data").exists()
    finally:
        lock.release()


def test_the_session_of_the_application_names_broker_and_state(
    scene: Scene, millpond: Millpond, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `millpond dev` has a free port and a state directory of its own; what stops its workers is in the message."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    status = SessionStatus(
        application=scene.app_id, title="count", guarantee="exactly_once", bootstrap_servers=scene.broker,
        directory="/logs", state_dir=str(scene.directory.parent.parent),
    )  # fmt: skip
    what = ("reset", "--input-topics", scene.topic)

    async def run(status: SessionStatus, *arguments: object) -> Ended:
        async with serving_session(scene.app_id, lambda: status, str):
            return await asyncio.to_thread(millpond, *what, *arguments)

    lock = DirectoryLock(scene.directory)
    try:
        assert "millpond dev scale 0` first" in asyncio.run(run(status, "--yes")).err
        alone = msgspec.structs.replace(status, in_process=True)
        assert "millpond dev scale 0` first" in asyncio.run(run(alone, "--yes")).err
    finally:
        lock.release()
    refused = asyncio.run(run(status, "--yes", "--application-id", "other", "--session", scene.app_id))
    assert (refused.status, "the session runs application" in refused.err) == (2, True)
    unknown = asyncio.run(run(status, "--application-id", "other")).err
    assert f"no session of 'other' runs, only of {scene.app_id}, and 'bootstrap.servers' is not set" in unknown
    assert scene.offsets() == {0: 3, 1: 2}
    ended = asyncio.run(run(msgspec.structs.replace(status, usual=3), "--yes"))
    assert "`millpond dev scale 3` starts workers again" in ended.out, ended.err
    assert scene.offsets() == {0: 0, 1: 0}
    assert not scene.directory.exists()


def test_active_group_members_are_noticed(scene: Scene) -> None:
    """A Java application of that id has members in the group; they must leave before its offsets are changed."""
    consumer = Consumer({"bootstrap.servers": scene.broker, "group.id": scene.app_id}, logger=kafka.log)
    consumer.subscribe([scene.topic])
    try:
        kafka.eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "it has joined")
        ended = scene.reset("--yes")
        assert ended.status == 1
        assert "1 active member" in ended.err
    finally:
        consumer.close()


def test_missing_input_topic_is_one_sentence(broker: Broker, millpond: Millpond, app_id: str) -> None:
    """A misspelled topic is reported before anything is changed."""
    missing = f"missing-{uuid.uuid4().hex[:6]}"
    ended = millpond(
        "reset", "--application-id", app_id, "--bootstrap-servers", broker.bootstrap_servers, "--input-topics", missing
    )
    assert ended.status == 1
    assert missing in ended.err


def _counted_to_three(times: int, rows: list[kafka.Row]) -> bool:
    return sum((row.key, row.value) == (b"a", b"\0" * 7 + b"\3") for row in rows) >= times


@pytest.mark.slow
def test_an_application_counts_again_after_a_reset(
    broker: Broker,
    millpond: Millpond,
    start: Callable[..., Process],
    application: Application,
    create_topic: CreateTopic,
    app_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run, reset, run: the second run starts over and gives the same counts."""
    words, counts = create_topic("words", partitions=2), create_topic("counts", partitions=2)
    monkeypatch.setenv("WORDS", words)
    monkeypatch.setenv("COUNTS", counts)
    kafka.produce(broker.bootstrap_servers, words, [(None, word) for word in "aabab"])
    target = f"{application(COUNT)}:count"
    options = (
        "--bootstrap-servers",
        broker.bootstrap_servers,
        "--application-id",
        app_id,
        "--processing-guarantee",
        "exactly_once",
    )
    for run in (1, 2):
        worker = start("run", target, *options)
        rows = kafka.read_until(broker.bootstrap_servers, counts, functools.partial(_counted_to_three, run))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.said
        assert sum(row.key == b"a" and row.value == b"\0" * 7 + b"\1" for row in rows) <= run
        ended = millpond("reset", target, *options, "--yes")
        assert ended.status == 0, ended.err
        assert "is reset" in ended.out


def test_internal_topics_of_foreign_key_joins_are_found_by_their_names() -> None:
    """They have other endings than repartition topics; the rule is that of Kafka's reset tool."""
    names = [f"fk-subscription-{each}-topic" for each in ("registration", "response")]
    names += [f"KTABLE-FK-JOIN-SUBSCRIPTION-{each}-0000000004-topic" for each in ("REGISTRATION", "RESPONSE")]
    existing = [*(f"a-{name}" for name in names), "a-other-topic", "fk-subscription-response-topic"]
    assert internal_topics(existing, "a", ["a"], None).own == tuple(sorted(f"a-{name}" for name in names))


def test_without_a_broker_the_message_says_how_to_get_one(millpond: Millpond, application: Application) -> None:
    """After the end of a session, for example."""
    for more in ((), ("--delete",)):
        ended = millpond("reset", f"{application(COUNT)}:count", "--yes", *more)
        assert ended.status == 2
        assert "no broker is known: no session of `millpond dev` runs" in ended.err
        assert "with its --data-dir, or give --bootstrap-servers" in ended.err
