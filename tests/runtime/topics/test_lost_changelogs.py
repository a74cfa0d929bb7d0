"""A changelog that does not exist at the start: created if it is new, rejected if its state was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import millpond as mp
from millpond.cli.reset.apply import apply_reset
from millpond.cli.reset.cluster import Cluster
from millpond.cli.reset.plan import Inputs, plan_reset
from millpond.errors import TopicError
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.runtime.topics.lost_changelogs import check_changelogs
from millpond.runtime.topics.plan import make_plan, summary
from millpond.state import StateFile
from tests.conftest import CreateTopic
from tests.runtime.running import GUARANTEES, Running, config, failure_of
from tests.support import kafka
from tests.support.broker import Broker

CHANGELOG = "app-counts-changelog"


def _counting(source: str) -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


PLAN = make_plan(_counting("in"), {"in": 1}, "app")
HASH = summary(PLAN).hash


@pytest.fixture(autouse=True)
def _known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one broker, so a topic that it does not know is not being propagated."""
    monkeypatch.setattr("millpond.runtime.topics.lost_changelogs._PROPAGATION_S", 0.0)


def _check(metadata: OffsetMetadata, *, offset: int | None = None, later: Mapping[str, int] | None = None) -> Any:
    """Check with one committed offset and one local row; `later` are the topics at a second request."""

    def survey(partitions: Sequence[Partition]) -> Mapping[Partition, CommittedOffset]:
        return {each: CommittedOffset(7, metadata) for each in partitions}

    local: Any = SimpleNamespace(offset=lambda store, partition: offset, path=Path("/state/app/w0"))
    return check_changelogs(PLAN, {"in": 1}, lambda: later or {"in": 1}, survey, local)


@pytest.mark.parametrize(
    "metadata", [OffsetMetadata(), OffsetMetadata("w0", 1, topology="other"), OffsetMetadata("w0", 1)]
)
def test_new_changelog_may_be_created(metadata: OffsetMetadata) -> None:
    """At the first start, for a store of a new version, and for an application that comes from Kafka Streams."""
    assert _check(metadata) == {"in": 1}


def test_changelog_of_committed_offsets_is_not_created_again() -> None:
    """The offsets name the topology whose state it had, so it existed."""
    with pytest.raises(TopicError, match=rf"'{CHANGELOG}' was deleted.*'millpond reset'"):
        _check(OffsetMetadata("w0", 1, topology=HASH))


def test_changelog_of_local_rows_is_not_created_again() -> None:
    """This holds for the offsets of any topology. After a reset they have no owner, and the local rows are older."""
    with pytest.raises(TopicError, match="was deleted"):
        _check(OffsetMetadata("w0", 1, topology="other"), offset=12)
    assert _check(OffsetMetadata(), offset=12) == {"in": 1}


def test_error_for_local_rows_alone_names_the_state_directory() -> None:
    """A store may have been removed with its changelog and added again; else this is no cure."""
    with pytest.raises(
        TopicError, match=r"delete its former rows in the state directory '/state/app/w0', and restart the worker"
    ):
        _check(OffsetMetadata("w0", 1, topology="other"), offset=12)
    with pytest.raises(TopicError) as raised:
        _check(OffsetMetadata("w0", 1, topology=HASH), offset=12)
    assert "/state" not in str(raised.value)


def test_changelog_that_another_worker_has_just_created_is_used() -> None:
    """That worker claimed its tasks after this one had listed the topics."""
    later = {"in": 1, CHANGELOG: 1}
    assert _check(OffsetMetadata("w1", 1, topology=HASH), later=later) == later


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_deleted_changelog_is_an_error_until_a_reset(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, guarantee: str
) -> None:
    """Rows and offsets stay, the topic is not created again, and after a reset everything is counted again."""
    source, servers = create_topic("in"), broker.bootstrap_servers
    changelog, settings = f"{app_id}-counts-changelog", {"processing.guarantee": guarantee}

    def committed() -> int:
        return kafka.committed_offsets(servers, app_id, source)[0][0]

    kafka.produce(servers, source, [("a", str(each)) for each in range(10)])
    with Running(_counting(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: committed() == 10, "all is committed")
    kafka.delete_topics(servers, [changelog])
    kafka.eventually(lambda: changelog not in kafka.topic_names(servers, app_id), "it is deleted")
    error = failure_of(_counting(source), servers, app_id, tmp_path, settings)
    assert isinstance(error, TopicError)
    assert f"'{changelog}' was deleted" in str(error)
    assert changelog not in kafka.topic_names(servers, app_id)
    assert committed() == 10
    with StateFile(tmp_path / app_id / "w0") as file:
        assert [value[8:] for _, value in file.range("counts", b"", None)] == [(10).to_bytes(8, "big")]
    with closing(Cluster(config(servers, app_id, tmp_path))) as cluster:
        inputs = Inputs(frozenset({source}))
        plan = plan_reset(cluster, inputs, None, lambda _, partitions, __: dict.fromkeys(partitions, 0))
        apply_reset(cluster, plan, lambda: None)
    kafka.produce(servers, source, [("a", "10")])
    with Running(_counting(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: committed() == 11, "all is committed")
    assert [int.from_bytes(row.value or b"", "big") for row in kafka.read(servers, changelog, settled=True)][-1] == 11
