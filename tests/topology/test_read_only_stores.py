"""Stores that are filled from a topic which is their changelog (KIP-813)."""

from __future__ import annotations

from typing import Any

import pytest

import millpond as mp
from millpond.errors import MillpondError, TopologyError
from millpond.runtime.topics.plan import make_plan
from millpond.testing import TopologyTestDriver


class Fill(mp.Processor[str, str, None, None]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("rates", mp.KeyValueStore).put(record.key, record.value)


class Look(mp.Processor[str, str, str, str]):
    def process(self, record: mp.Record[str, str]) -> None:
        store = self.context.get_state_store("rates", mp.KeyValueStore)
        self.context.forward(record.with_value(f"{record.value} {store.get(record.key)}"))


class Write(mp.Processor[str, str, str, str]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("rates", mp.KeyValueStore).put(record.key, record.value)


def rates(**options: Any) -> mp.KeyValueStoreBuilder[str, str]:
    return mp.KeyValueStoreBuilder(name="rates", key=mp.String, value=mp.String, **options)


def application(reader: Any = Look, store: Any = None) -> mp.Topology:
    builder = mp.StreamsBuilder()
    builder.add_read_only_state_store(store or rates(), "rates", Fill, key=mp.String, value=mp.String)
    payments = builder.stream("payments", key=mp.String, value=mp.String)
    payments.process(reader, stores=["rates"], key=mp.String, value=mp.String).to("out")
    return builder.build()


def by_hand(store: Any = None, topic: str = "rates") -> mp.Topology:
    return mp.Topology().add_read_only_state_store(
        store or rates(), topic, Fill, source_name="source", processor_name="fill", key=mp.String, value=mp.String
    )


def test_a_processor_that_is_connected_reads_what_the_topic_has() -> None:
    with TopologyTestDriver(application()) as driver:
        rows = driver.create_input_topic("rates", key=mp.String, value=mp.String)
        payments = driver.create_input_topic("payments", key=mp.String, value=mp.String)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        payments.pipe_input("eur", "1")
        rows.pipe_input("eur", "1.08")
        payments.pipe_input("eur", "2")
        rows.pipe_input("eur", None)
        payments.pipe_input("eur", "3")
        assert [record.value for record in out.read_records_to_list()] == ["1 None", "2 1.08", "3 None"]


def test_a_processor_that_does_not_fill_it_cannot_write() -> None:
    """What it wrote would not be in the topic, and would be lost with the disk."""
    with TopologyTestDriver(application(Write)) as driver:
        payments = driver.create_input_topic("payments", key=mp.String, value=mp.String)
        with pytest.raises(MillpondError, match=r"put\(\) cannot be called on store 'rates' here"):
            payments.pipe_input("eur", "1")


@pytest.mark.parametrize("logging", [True, False])
def test_the_topic_is_the_only_changelog(logging: bool) -> None:
    plan = make_plan(application(store=rates(logging=logging)), {"rates": 3, "payments": 3, "out": 1}, "app")
    assert plan.internal == ()
    assert plan.changelogs == {0: {"rates": "rates"}}
    assert len(plan.tasks) == 3


def test_readers_and_the_store_are_in_one_task() -> None:
    topology = by_hand()
    topology.add_source("in", "payments", key=mp.String, value=mp.String)
    topology.add_processor("look", Look, "in", stores=["rates"])
    (part,) = topology.subtopologies()
    assert part.source_topics == {"rates", "payments"}


def test_the_topic_is_read_from_its_beginning_whatever_the_settings_say() -> None:
    (part,) = by_hand().subtopologies()
    assert part.sources[0].reset == "earliest"


def test_names_in_the_dsl_are_given_or_generated() -> None:
    builder = mp.StreamsBuilder()
    builder.add_read_only_state_store(rates(), "rates", Fill)
    assert list(builder.build().nodes) == ["KSTREAM-SOURCE-0000000000", "KSTREAM-PROCESSOR-0000000001"]
    builder = mp.StreamsBuilder()
    builder.add_read_only_state_store(rates(), "rates", Fill, name="fill")
    assert list(builder.build().nodes) == ["fill-source", "fill"]


def test_a_store_that_another_topology_part_has_is_rejected() -> None:
    with pytest.raises(TopologyError, match="Another store is already called 'rates'"):
        by_hand().add_read_only_state_store(rates(), "more", Fill, source_name="s", processor_name="p")
    with pytest.raises(TopologyError, match="Topic 'rates' is already read by source 'source'"):
        by_hand().add_read_only_state_store(
            mp.KeyValueStoreBuilder(name="other"), "rates", Fill, source_name="s", processor_name="p"
        )
    with pytest.raises(TopologyError, match="has the source topic 'old' already"):
        by_hand(rates(source_topic="old"))
    with pytest.raises(TopologyError, match="needs a store's builder"):
        mp.StreamsBuilder().add_read_only_state_store("rates", "rates", Fill)  # type: ignore[arg-type]


class Words(mp.StateStore):
    """A store of one's own that the topic restores."""

    def __init__(self) -> None:
        self.words: set[str] = set()

    def add(self, word: str) -> None:
        self.log(word.encode(), b"")
        self.words.add(word)

    def restore(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.words.add(key.decode())

    def clear(self) -> None:
        self.words.clear()


class Adds(mp.Processor[str, str, str, str]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.get_state_store("rates", Words).add(record.key)


@pytest.mark.parametrize("fills", [True, False])
def test_a_store_of_ones_own_is_changed_by_its_processor_only(fills: bool) -> None:
    builder = mp.StreamsBuilder()
    own = mp.StateStoreBuilder(name="rates", supplier=Words)
    builder.add_read_only_state_store(own, "rates", Adds, key=mp.String, value=mp.String)
    builder.stream("payments", key=mp.String, value=mp.String).process(Adds, stores=["rates"])
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("rates" if fills else "payments", key=mp.String, value=mp.String)
        if fills:
            topic.pipe_input("a", "")
            assert driver.get_state_store("rates").words == {"a"}
        else:
            with pytest.raises(MillpondError, match="store 'rates' cannot be changed here"):
                topic.pipe_input("a", "")
