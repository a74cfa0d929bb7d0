"""The rewrites of `topology.optimization`: which topics and stores a topology has, and what stays as it is written."""

from __future__ import annotations

from typing import Any

import pytest

import millpond as mp
from millpond.cli.application import load_topology
from millpond.errors import TopologyError
from millpond.runtime.topics.plan import make_plan
from millpond.testing import TopologyTestDriver
from millpond.topology.optimization import OPTIMIZATIONS

MERGE = "merge.repartition.topics"


def by_value(_key: str, value: str) -> str:
    return value


def keep(_key: str, _value: str) -> bool:
    return True


class Rekey(mp.Processor[str, str, str, str]):
    def process(self, record: mp.Record[str, str]) -> None:
        self.context.forward(record.with_key(record.value))


def stream(builder: mp.StreamsBuilder, topic: str = "in") -> mp.KStream[str, str]:
    return builder.stream(topic, key=mp.String, value=mp.String)


def rekeyed(builder: mp.StreamsBuilder, topic: str = "in") -> mp.KStream[str, str]:
    return stream(builder, topic).select_key(by_value, key=mp.String)


def topics(builder: mp.StreamsBuilder, optimization: Any = MERGE) -> list[str]:
    return list(builder.build(optimization=optimization).repartition_topics)


def test_the_topics_below_one_key_change_become_the_first_of_them() -> None:
    builder = mp.StreamsBuilder()
    source = rekeyed(builder)
    for name in ("first", "second", "third"):
        source.filter(keep).group_by_key(name=name).count()
    assert topics(builder, "none") == ["first-repartition", "second-repartition", "third-repartition"]
    assert topics(builder) == ["first-repartition"]


def test_a_topic_above_a_join_of_a_global_table_carries_the_values_before_the_join() -> None:
    builder = mp.StreamsBuilder()
    names = builder.global_table("names", key=mp.String, value=mp.String)
    numbers = builder.stream("in", key=mp.String, value=mp.Long).select_key(lambda _key, _value: "k", key=mp.String)
    joined = numbers.left_join(names, lambda number, name: f"{number} {name}", on=lambda key, _: key, value=mp.String)
    joined.to_table(store="last").to_stream().to("out")
    topology = builder.build(optimization="all")
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("names", key=mp.String, value=mp.String).pipe_input("k", "a")
        driver.create_input_topic("in", key=mp.String, value=mp.Long).pipe_input("x", 7)
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list() == ["7 a"]


def test_a_topic_stays_below_a_step_over_batches() -> None:
    builder = mp.StreamsBuilder()
    numbers = builder.stream("in", key=mp.String, value=mp.Long).select_key(lambda _key, _value: "k", key=mp.String)
    texts = numbers.map_batches(lambda batch: [str(value) for value in batch], value=mp.String)
    texts.to_table(store="last").to_stream().to("out")
    with TopologyTestDriver(builder.build(optimization="all")) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.Long).pipe_input("x", 7)
        assert driver.create_output_topic("out", key=mp.String, value=mp.String).read_values_to_list() == ["7"]


def test_two_groupings_below_one_filter_share_a_topic() -> None:
    builder = mp.StreamsBuilder()
    filtered = rekeyed(builder).filter(keep)
    filtered.group_by_key(name="a").count(store="a")
    filtered.group_by_key(name="b").count(store="b")
    topology = builder.build(optimization="all")
    assert list(topology.repartition_topics) == ["a-repartition"]
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key=mp.String, value=mp.String).pipe_input("k", "v")
        for store in ("a", "b"):
            counts: Any = driver.get_key_value_store(store)
            assert counts.get("v") == 1


def test_a_topic_does_not_move_above_a_change_of_values() -> None:
    builder = mp.StreamsBuilder()
    source = rekeyed(builder)
    source.group_by_key(name="a").count()
    source.map_values(len, value=mp.Long).group_by_key(name="b").count()
    assert sorted(topics(builder)) == ["a-repartition", "b-repartition"]


def test_a_topic_does_not_move_above_a_processor_which_may_change_keys() -> None:
    builder = mp.StreamsBuilder()
    source = rekeyed(builder)
    source.process(Rekey, key=mp.String, value=mp.String).group_by_key(name="a").count()
    text = str(builder.build(optimization="all").describe())
    assert text.index("Processor: KSTREAM-PROCESSOR-0000000002") < text.index("Sink: a-repartition-sink")


def test_streams_with_other_keys_keep_their_topic_below_a_merge() -> None:
    builder = mp.StreamsBuilder()
    first = rekeyed(builder)
    first.group_by_key(name="alone").count()
    first.merge(rekeyed(builder, "other")).group_by_key(name="both").count()
    assert sorted(topics(builder)) == ["alone-repartition", "both-repartition"]


def test_a_table_is_restored_from_its_topic() -> None:
    builder = mp.StreamsBuilder()
    builder.table("rows", key=mp.String, value=mp.String, store="rows-store")
    plan = make_plan(builder.build(optimization="reuse.ktable.source.topics"), {"rows": 2}, "app")
    assert plan.changelogs == {0: {"rows-store": "rows"}}
    assert plan.internal == ()


def test_a_table_without_the_rewrite_has_a_changelog() -> None:
    builder = mp.StreamsBuilder()
    builder.table("rows", key=mp.String, value=mp.String, store="rows-store")
    plan = make_plan(builder.build(), {"rows": 2}, "app")
    assert [each.name for each in plan.internal] == ["app-rows-store-changelog"]


def test_a_builder_can_be_built_twice_with_the_same_rewrites_only() -> None:
    builder = mp.StreamsBuilder()
    rekeyed(builder).group_by_key().count()
    assert str(builder.build(optimization="all").describe()) == str(builder.build(optimization="all").describe())
    with pytest.raises(TopologyError, match="with a StreamsBuilder of its own"):
        builder.build(optimization="none")


@pytest.mark.parametrize("given", ["al", "none,all", ["merge"], 3, ""])
def test_an_unknown_rewrite_is_rejected(given: Any) -> None:
    with pytest.raises(TopologyError, match="optimization="):
        mp.StreamsBuilder().build(optimization=given)


def test_a_list_of_all_rewrites_is_all() -> None:
    builder = mp.StreamsBuilder()
    rekeyed(builder).group_by_key().count()
    assert builder.build(optimization=OPTIMIZATIONS).rewrites == frozenset(OPTIMIZATIONS)
    assert mp.Config.of(topology_optimization=list(OPTIMIZATIONS), required=()).topology_optimization == "all"


def test_a_setting_that_build_was_not_given_is_rejected() -> None:
    builder = mp.StreamsBuilder()
    rekeyed(builder).group_by_key().count()
    with pytest.raises(TopologyError, match=r"builder.build\(optimization='all'\)"):
        TopologyTestDriver(builder.build(), {"topology.optimization": "all"})


application = mp.StreamsBuilder()
rekeyed(application).group_by_key(name="a").count()


def test_an_application_that_millpond_loads_takes_the_setting() -> None:
    assert load_topology(f"{__name__}:application", MERGE).rewrites == {MERGE}
