"""Metrics of processors, and figures of single nodes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import millpond as mp
from millpond.errors import TopologyError
from millpond.runtime.http.user_metrics import node_families, store_families, user_families
from millpond.testing import TopologyTestDriver
from millpond.topology.user_metrics import TaskMetrics, UserMetrics

LABELS = {"application_id": "app", "worker": "w0"}


class Orders(mp.Processor[str, str, str, str]):
    """Counts rejected orders by reason, and the sizes of the others."""

    def init(self, context: mp.ProcessorContext[str, str]) -> None:
        metrics = context.metrics
        self.stale = metrics.counter("orders_rejected", "Orders rejected.", tags={"reason": "stale"})
        self.empty = metrics.counter("orders_rejected", tags={"reason": "empty"})
        self.sizes = metrics.histogram("order_characters", buckets=(2, 4))
        self.open = metrics.gauge("orders_open")
        self.detail = metrics.timer("detail", level="DEBUG")

    def process(self, record: mp.Record[str, str]) -> None:
        if not record.value:
            self.empty.inc()
            return
        with self.detail.time():
            self.sizes.observe(len(record.value))
        self.open.inc()
        self.context.forward(record)


def text_of(families: Any) -> str:
    """Metric families in Prometheus' text format."""

    class Families:
        def collect(self) -> Any:
            return list(families)

    registry = CollectorRegistry()
    registry.register(Families())  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def run(level: str, *values: str) -> tuple[str, str]:
    """The user's metrics and those of nodes, as text, after some orders."""
    topology = mp.Topology().add_source("in", "in", key=mp.String, value=mp.String)
    topology.add_processor("orders", Orders, "in")
    topology.add_sink("out", "out", "orders", key=mp.String, value=mp.String)
    with TopologyTestDriver(topology, {"metrics.recording.level": level}, initial_wall_clock=3_000) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for value in values:
            topic.pipe_input("k", value, timestamp=1_000)
        tasks = [driver._task]
        return text_of(user_families(LABELS, tasks)), text_of(node_families(LABELS, tasks))


def test_metrics_of_a_processor_are_shown_with_their_task_and_node() -> None:
    """Counters, gauges and histograms have Prometheus' names and the labels of the worker, the task and the node."""
    text, nodes = run("INFO", "a", "", "four", "longer")
    where = 'application_id="app",node="orders",task="0_0",worker="w0"'
    tagged = 'application_id="app",node="orders",reason="{}",task="0_0",worker="w0"'.format
    assert f"millpond_user_orders_rejected_total{{{tagged('empty')}}} 1.0" in text
    assert f"millpond_user_orders_rejected_total{{{tagged('stale')}}} 0.0" in text
    assert "# HELP millpond_user_orders_rejected_total Orders rejected." in text
    assert f"millpond_user_orders_open{{{where}}} 3.0" in text
    for bound, count in (("2.0", 1.0), ("4.0", 2.0), ("+Inf", 3.0)):
        labels = f'application_id="app",le="{bound}",node="orders",task="0_0",worker="w0"'
        assert f"millpond_user_order_characters_bucket{{{labels}}} {count}" in text
    assert f"millpond_user_order_characters_sum{{{where}}} 11.0" in text
    assert "detail" not in text, "metrics of level DEBUG are not recorded with INFO"
    assert nodes == "", "nothing is recorded for nodes with INFO"


def test_figures_of_nodes_are_recorded_with_debug() -> None:
    """Each node counts what reached it and what it sent on; sources and last nodes measure the latency."""
    text, nodes = run("DEBUG", "a", "", "four")
    assert "millpond_user_detail_seconds_count" in text
    for node, processed, forwarded in (("in", 3, 3), ("orders", 3, 2), ("out", 2, 0)):
        labels = f'application_id="app",node="{node}",task="0_0",worker="w0"'
        assert f"millpond_node_processed_records_total{{{labels}}} {processed}.0" in nodes
        assert f"millpond_node_forwarded_records_total{{{labels}}} {forwarded}.0" in nodes
    for node, count, total in (("in", 3, 6.0), ("out", 2, 4.0)):
        labels = f'application_id="app",node="{node}",task="0_0",worker="w0"'
        assert f"millpond_node_e2e_latency_seconds_count{{{labels}}} {count}.0" in nodes
        assert f"millpond_node_e2e_latency_seconds_sum{{{labels}}} {total}" in nodes
    assert 'latency_seconds_count{application_id="app",node="orders"' not in nodes


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_figures_of_stores_are_recorded_with_debug(level: str) -> None:
    """Each flush is measured, and its changelog records are counted; with INFO there is nothing."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts")
    settings = {"metrics.recording.level": level, "statestore.cache.max.bytes": 1_000_000}
    with TopologyTestDriver(builder.build(), settings) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        for key in "aab":
            topic.pipe_input(key, "1")
        text = text_of(store_families(LABELS, [driver._task]))
    labels = 'application_id="app",store="counts",task="0_0",worker="w0"'
    if level == "INFO":
        assert text == ""
        return
    assert f"millpond_store_changelog_records_total{{{labels}}} 3.0" in text, "the driver commits after each record"
    (count,) = re.findall(rf"millpond_store_flush_seconds_count{{{labels}}} ([0-9.]+)", text)
    assert float(count) >= 3


@pytest.mark.parametrize("level", ["DEBUG", "TRACE"])
def test_trace_measures_nodes_with_stores_too(level: str) -> None:
    """A counting node has its drops with DEBUG, and its latency only with TRACE."""
    builder = mp.StreamsBuilder()
    stream = builder.stream("in", key=mp.String, value=mp.String)
    stream.group_by_key().count(store="counts").to_stream().to("out", key=mp.String, value=mp.Long)
    with TopologyTestDriver(builder.build(), {"metrics.recording.level": level}) as driver:
        topic = driver.create_input_topic("in", key=mp.String, value=mp.String)
        topic.pipe_input("a", "1")
        topic.pipe_input(None, "1")
        figures = {each.node: each for each in driver._task.node_figures}
        assert driver.metrics()["dropped"] == 1
    count = figures["KSTREAM-AGGREGATE-0000000001"]
    assert (count.processed, count.forwarded, count.dropped) == (2, 1, 1)
    assert (count.latency is not None) is (level == "TRACE")


def metrics_of(node: str = "work") -> Any:
    return TaskMetrics(UserMetrics()).of_node(node)


@pytest.mark.parametrize("name", ["Orders", "orders_total", "orders-rejected", "", "x" * 101, "a__b", 3])
def test_a_name_that_prometheus_would_not_take_is_rejected(name: Any) -> None:
    """The error names the processor."""
    with pytest.raises(TopologyError, match="Processor 'work' adds"):
        metrics_of().counter(name)


@pytest.mark.parametrize(
    "options",
    [{"tags": {"task": "1"}}, {"tags": {"Reason": "x"}}, {"tags": {"reason": 1}}, {"tags": "reason"}, {"level": "INF"}],
)
def test_wrong_tags_and_levels_are_rejected(options: dict[str, Any]) -> None:
    """Labels of the worker's own cannot be tags."""
    with pytest.raises(TopologyError, match="Processor 'work' adds metric 'orders'"):
        metrics_of().counter("orders", **options)


@pytest.mark.parametrize("buckets", [(), (2, 1), (1, 1), range(51)])
def test_wrong_buckets_are_rejected(buckets: Any) -> None:
    """Bounds ascend, and are not many."""
    with pytest.raises(TopologyError, match="1 to 50 ascending bounds"):
        metrics_of().histogram("sizes", buckets=buckets)


def test_a_name_has_one_kind_and_one_set_of_tags_in_a_worker() -> None:
    """Tasks and nodes share the names; the same name and tags are the same instrument."""
    shared = UserMetrics()
    first, second = TaskMetrics(shared).of_node("one"), TaskMetrics(shared).of_node("two")
    counter = first.counter("orders", tags={"a": "1"})
    assert first.counter("orders", tags={"a": "1"}) is counter
    assert first.counter("orders", tags={"a": "2"}) is not counter
    assert second.counter("orders", tags={"a": "1"}) is not counter
    for other in (lambda: second.gauge("orders", tags={"a": "1"}), lambda: second.counter("orders")):
        with pytest.raises(TopologyError, match="Processor 'two' adds metric 'orders', which exists with another kind"):
            other()


def test_names_and_instruments_are_bounded() -> None:
    """A processor that makes a name, or a tag's value, per key is stopped early."""
    metrics = metrics_of()
    with pytest.raises(TopologyError, match="to the 1,000 instruments that a task can have"):
        for number in range(1_001):
            metrics.counter("orders", tags={"customer": str(number)})
    with pytest.raises(TopologyError, match="to the 100 names that a worker can have"):
        for number in range(101):
            metrics_of_many.counter(f"orders_{number}")


metrics_of_many = metrics_of()


def test_a_counter_only_grows() -> None:
    """A negative amount is an error; a gauge takes it."""
    counter, gauge = metrics_of().counter("orders"), metrics_of().gauge("open")
    counter.inc(2)
    with pytest.raises(ValueError, match="a counter only grows"):
        counter.inc(-1)
    gauge.set(5)
    gauge.dec(2)
    assert (counter.value, gauge.value) == (2, 3)
