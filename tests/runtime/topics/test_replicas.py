"""Internal topics with one replica: a warning on three brokers and more, which hides nothing worse."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

import millpond as mp
from millpond.errors import BrokerError, TopicAtRisk
from millpond.runtime.blockers import Blockers
from millpond.runtime.topics.replicas import ReplicaCheck, risks
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import OwnBroker
from tests.support.clusters.kafka import KafkaCluster

LOG, OTHER = "app-counts-changelog", "app-joined-repartition"


def _listing(brokers: int, **replicas: int) -> Any:
    topics = {
        name.replace("_", "-"): SimpleNamespace(partitions={0: SimpleNamespace(replicas=list(range(count)))})
        for name, count in replicas.items()
    }
    return SimpleNamespace(brokers=dict.fromkeys(range(brokers)), topics=topics)


@pytest.mark.parametrize(
    ("factor", "brokers", "replicas", "warns"),
    [
        (-1, 3, {"app_counts_changelog": 1, "app_joined_repartition": 3}, True),
        (3, 3, {"app_counts_changelog": 1, "app_joined_repartition": 3}, True),  # it was created before the setting
        (-1, 2, {"app_counts_changelog": 1, "app_joined_repartition": 1}, False),
        (-1, 3, {"app_counts_changelog": 2, "app_joined_repartition": 3}, False),
        (1, 3, {"app_counts_changelog": 1, "app_joined_repartition": 1}, False),  # the user's own choice
        (-1, 3, {"in": 1}, False),  # an input is the user's
    ],
)
def test_single_replicas_are_told_where_three_brokers_could_have_more(
    factor: int, brokers: int, replicas: Mapping[str, int], warns: bool
) -> None:
    blockers = Blockers()
    ReplicaCheck([LOG, OTHER], factor, blockers)(_listing(brokers, **replicas))
    trouble = blockers.trouble()
    assert (trouble is not None) == warns
    if trouble is not None:
        assert trouble.reason == "TopicAtRisk"
        assert trouble.message.startswith(f"1 internal topic ('{LOG}') has one replica, on a cluster of 3 brokers")
        assert "'replication.factor' to 3" in trouble.message


@pytest.mark.parametrize(
    ("default", "told"),
    [
        (3, []),
        (1, [f"1 internal topic ('{OTHER}') would be created with one replica, the default of these 3 brokers: "]),
        (None, [f"1 internal topic ('{OTHER}') would be created with as many replicas as the default of the br"]),
    ],
)
def test_new_topics_get_the_replicas_that_brokers_give_by_default(default: int | None, told: list[str]) -> None:
    """Asked only where the answer matters: not of two brokers, and not if the settings name a number."""
    found = list(risks(_listing(3, app_counts_changelog=3), [LOG, OTHER], -1, lambda: default))
    assert [each for each in found if not each.startswith(tuple(told))] == []
    assert len(found) == len(told)

    def asked() -> int:
        raise AssertionError("asked")

    assert list(risks(_listing(2), [LOG, OTHER], -1, asked)) == []
    assert list(risks(_listing(3), [LOG, OTHER], 3, asked)) == []


def test_the_warning_is_logged_once_and_ends_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    blockers = Blockers()
    check = ReplicaCheck([LOG, OTHER], -1, blockers)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            check(_listing(3, app_counts_changelog=1, app_joined_repartition=1))
    (told,) = caplog.messages
    assert told.startswith(f"2 internal topics ('{LOG}', '{OTHER}') have one replica")
    check(_listing(3, app_counts_changelog=3, app_joined_repartition=3))
    assert blockers.trouble() is None


def test_a_warning_hides_no_blocker() -> None:
    """It is older than most, and stays as long as the worker runs."""
    blockers = Blockers()
    blockers.add("replicas", TopicAtRisk("one replica."), 0.0, warning=True)
    blockers.add("brokers", BrokerError("no answer."), 0.0)
    assert [blockers.trouble().message] == ["no answer."]  # type: ignore[union-attr]
    blockers.remove("brokers")
    assert [blockers.trouble().message] == ["one replica."]  # type: ignore[union-attr]


@pytest.fixture
def stock(own_brokers: type[OwnBroker], tmp_path: Path) -> Iterator[KafkaCluster]:
    """Three brokers with the default of brokers."""
    with KafkaCluster(tmp_path / "cluster", {"default.replication.factor": "1"}, make=own_brokers) as made:
        yield made


def _counts() -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).group_by_key().count(store="counts")
    return builder.build()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_stock_cluster_of_three_is_told(stock: KafkaCluster, app_id: str, tmp_path: Path) -> None:
    """The changelog that the worker creates has one replica there; with `replication.factor` it has three."""
    stock.create_topics(NewTopic("in", 1, 3))
    with Running(_counts(), stock.bootstrap_servers, app_id, tmp_path / "one") as running:
        kafka.eventually(lambda: running.worker.waiting.trouble() is not None, "the worker warns")
        trouble = running.worker.waiting.trouble()
        assert trouble is not None
        assert trouble.message.startswith(f"1 internal topic ('{app_id}-counts-changelog') has one replica")
    settings = {"replication.factor": 3}
    with Running(_counts(), stock.bootstrap_servers, f"{app_id}-3", tmp_path / "three", settings) as running:
        running.wait_running()
        assert running.worker.waiting.trouble() is None
