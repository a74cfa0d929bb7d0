"""State in changelogs of tasks without commits: rejected where records would count twice, told elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

import millpond as mp
from millpond.errors import TopicError
from millpond.runtime.offsets.metadata import CommittedOffset, OffsetMetadata, Partition
from millpond.runtime.topics.plan import make_plan
from millpond.runtime.topics.state_of_earlier_life import check_no_earlier_life
from tests.conftest import CreateTopic
from tests.runtime.running import GUARANTEES, Running, failure_of
from tests.support import kafka
from tests.support.broker import Broker


def _counting(source: str, store: str = "counts") -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream(source, key=mp.String, value=mp.String).group_by_key().count(store=store)
    return builder.build()


PLAN = make_plan(_counting("in"), {"in": 1}, "app")
INPUT, CHANGELOG = Partition("in", 0), Partition("app-counts-changelog", 0)
EXISTING = {"in", "app-counts-changelog"}


def _check(*answers: CommittedOffset, ends: tuple[int, int] = (0, 9), earliest: bool = True) -> list[str]:
    """Check with the committed offset in each answer; return the requests."""
    requests: list[str] = []
    left = list(answers)

    def survey(partitions: Sequence[Partition]) -> dict[Partition, CommittedOffset]:
        requests.append("committed")
        return dict.fromkeys(partitions, left.pop(0))

    def ranges(partitions: Any) -> dict[Partition, tuple[int, int]]:
        requests.append("ends")
        return {each: ends if each == CHANGELOG else (3, 7) for each in partitions}

    check_no_earlier_life(PLAN, EXISTING, survey, ranges, lambda _topic: earliest)
    return requests


NONE, AT_BEGINNING = CommittedOffset(None, OffsetMetadata()), CommittedOffset(3, OffsetMetadata())
CLAIMED = CommittedOffset(3, OffsetMetadata("w0", 1))


@pytest.mark.parametrize("committed", [NONE, AT_BEGINNING])
def test_no_record_is_counted_twice(committed: CommittedOffset) -> None:
    """Offsets that were set back or have expired, with state that is there: the message has both cures."""
    with pytest.raises(TopicError, match=r"'app-counts-changelog' has state of an earlier life.*in-0.*millpond reset"):
        _check(committed, committed)


def test_an_empty_changelog_is_that_of_a_first_start() -> None:
    """Then nothing is to be said."""
    assert _check(NONE, ends=(0, 0)) == ["committed", "ends"]


def test_tasks_with_a_claim_cost_one_request() -> None:
    """Any owner in the metadata proves that a worker has begun in this life."""
    assert _check(CLAIMED) == ["committed"]


def test_a_claim_of_another_worker_meanwhile_is_seen() -> None:
    """It may have written to the changelog between both requests."""
    assert _check(NONE, CLAIMED) == ["committed", "ends", "committed"]


@pytest.mark.parametrize(("committed", "earliest"), [(CommittedOffset(5, OffsetMetadata()), True), (NONE, False)])
def test_other_positions_are_told(committed: CommittedOffset, earliest: bool, caplog: pytest.LogCaptureFixture) -> None:
    """After Kafka Streams or after records were skipped by hand, the state is right: a warning, and no refusal."""
    with caplog.at_level(logging.WARNING):
        _check(committed, committed, earliest=earliest)
    assert "'app-counts-changelog' has state already, which is used" in caplog.text


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_offsets_that_were_set_back_by_hand_end_the_start(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, guarantee: str
) -> None:
    """Each start is refused, and nothing is changed; a start from the end keeps the state."""
    source, servers = create_topic("in"), broker.bootstrap_servers
    settings = {"processing.guarantee": guarantee}
    changelog = f"{app_id}-counts-changelog"

    def committed() -> int:
        return kafka.committed_offsets(servers, app_id, source)[0][0]

    def set_offset(offset: int) -> None:
        kafka.commit_offsets(servers, app_id, [TopicPartition(source, 0, offset)])

    kafka.produce(servers, source, [("a", "x")] * 3)
    with Running(_counting(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: committed() == 3, "all is committed")
    set_offset(0)
    before = len(kafka.read(servers, changelog, settled=True))
    for _ in range(2):
        error = failure_of(_counting(source), servers, app_id, tmp_path, settings)
        assert isinstance(error, TopicError)
        assert f"'{changelog}' has state of an earlier life" in str(error)
    assert (committed(), len(kafka.read(servers, changelog))) == (0, before)
    set_offset(2)
    with Running(_counting(source), servers, app_id, tmp_path, settings) as running:
        running.wait(lambda: committed() == 3, "it goes on")
    assert [int.from_bytes(row.value or b"", "big") for row in kafka.read(servers, changelog, settled=True)][-1] == 4
