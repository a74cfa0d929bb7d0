"""Topics of others from which stores are restored: those whose records brokers delete are reported at the start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import millpond as mp
from millpond.runtime.topics.plan import make_plan
from millpond.runtime.topics.state_sources import state_sources, warn_of_deletions
from tests.conftest import CreateTopic
from tests.runtime.running import Running
from tests.support.broker import Broker

_REUSE = "reuse.ktable.source.topics"
_DELETED = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}


class _Fill(mp.Processor[str, str, None, None]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("filled").put(record.key, record.value)


def _windows() -> mp.WindowStoreBuilder[str, str]:
    week = 7 * 86_400_000
    return mp.WindowStoreBuilder(name="filled", key=mp.String, value=mp.String, retention_ms=week, window_size_ms=week)


def _prices(store: str = "prices") -> mp.StreamsBuilder:
    builder = mp.StreamsBuilder()
    builder.table("prices", key=mp.String, value=mp.String, store=store).to_stream().to("out")
    return builder


def _sources(topology: mp.Topology) -> dict[str, str]:
    plan = make_plan(topology, {"prices": 1, "rates": 1, "facts": 1, "out": 1}, "app")
    return state_sources(plan, [(each.store, each.source.topics[0]) for each in topology.global_stores])


def test_inputs_from_which_stores_are_restored() -> None:
    """Tables that share their topic, read-only stores and global tables; not tables with a changelog."""
    builder = _prices()
    builder.global_table("rates", key=mp.String, value=mp.String, store="rates")
    fact = mp.KeyValueStoreBuilder(name="filled", key=mp.String, value=mp.String)
    builder.add_read_only_state_store(fact, "facts", _Fill, key=mp.String, value=mp.String)
    assert _sources(builder.build()) == {"rates": "rates", "facts": "filled"}
    assert _sources(builder.build(optimization=_REUSE)) == {"prices": "prices", "rates": "rates", "facts": "filled"}


def test_windows_may_expire_with_their_records() -> None:
    """Retention of the topic of a store of windows is no loss."""
    builder = mp.StreamsBuilder()
    builder.add_read_only_state_store(_windows(), "facts", _Fill, key=mp.String, value=mp.String)
    assert _sources(builder.build()) == {}


@pytest.mark.parametrize(
    ("settings", "reported"),
    [
        ({}, "'cleanup.policy' is delete, 'retention.ms' is 604800000"),
        ({"cleanup.policy": "compact,delete"}, "'cleanup.policy' is compact,delete, 'retention.ms' is 604800000"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, "'cleanup.policy' is delete, 'retention.bytes' is 1000"),
        ({"cleanup.policy": "compact"}, None),
        ({"retention.ms": "-1"}, None),
    ],
)
def test_deletions_are_reported(
    settings: dict[str, str], reported: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """By time or size; a topic that is compacted, or kept for ever, loses no row."""
    warn_of_deletions({"prices": "table"}, lambda topics: {each: {**_DELETED, **settings} for each in topics})
    found = [each.getMessage() for each in caplog.records]
    if reported is None:
        assert not found
    else:
        assert found == [
            f"store table: it is restored from source topic prices, from which brokers delete records ({reported}), so "
            "a restored store lacks the rows whose last record was deleted; set the topic's 'cleanup.policy' to "
            "'compact'"
        ]


def test_without_such_topics_nothing_is_requested() -> None:
    """Most applications have none."""
    warn_of_deletions({}, lambda _: pytest.fail("the configuration was requested"))


def test_a_worker_warns_at_its_start(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs all the same, as Kafka Streams does. A compacted topic is not reported."""
    caplog.set_level(logging.WARNING, "millpond.runtime.topics.state_sources")
    lost, kept = create_topic("lost", retention_ms="3600000"), create_topic("kept", cleanup_policy="compact")
    builder = mp.StreamsBuilder()
    for topic in (lost, kept):
        builder.table(topic, key=mp.String, value=mp.String, store=f"of-{topic}")
    with Running(builder.build(optimization=_REUSE), broker.bootstrap_servers, app_id, tmp_path) as running:
        running.wait_running()
    warned = [each.getMessage() for each in caplog.records if each.name == "millpond.runtime.topics.state_sources"]
    assert len(warned) == 1
    assert f"store of-{lost}: it is restored from source topic {lost}" in warned[0]
