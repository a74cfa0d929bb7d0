"""The metrics that processors record, and the figures of single nodes, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from millpond.runtime.processing.node_figures import NodeFigures, StoreFigures
from millpond.texts import well_formed
from millpond.topology.user_metrics import Counter, Gauge, Histogram, MetricDefinition

from .metric_families import FLUSHES, NODES, families

__all__ = ("DETAILED", "node_families", "store_families", "user_families")

_PREFIX = "millpond_user_"

_LATENCY = "millpond_node_e2e_latency_seconds"
_FLUSH = "millpond_store_flush_seconds"

DETAILED: dict[str, str] = {
    _LATENCY: "Seconds from the timestamp of a record until the node had processed it: of sources and of nodes without "
    "children with metrics.recording.level DEBUG, with TRACE also of nodes with stores. Bad when that of a node is far "
    "above that of its source.",
    _FLUSH: "Seconds that a flush of the store took before a commit, with what the nodes below its record cache did "
    "with the updates; with metrics.recording.level DEBUG. Bad when it is most of millpond_worker_commit_seconds: the "
    "store has many changes in each commit, or its values are slow to encode.",
}
"""The histograms of level DEBUG, with their help texts."""


def node_families(labels: Mapping[str, str], tasks: Iterable[Any]) -> Iterator[Metric]:
    """Yield the metrics of single nodes; none unless they are recorded."""
    nodes: list[tuple[Sequence[str], NodeFigures]] = [
        ((str(task.id), each.node), each) for task in tasks for each in list(task.node_figures)
    ]
    if not nodes:
        return
    yield from families(NODES, labels, ["task", "node"], nodes)
    latencies = HistogramMetricFamily(_LATENCY, DETAILED[_LATENCY], labels=[*labels, "task", "node"])
    for values, each in nodes:
        if each.latency is not None:
            _add(latencies, [*labels.values(), *values], each.latency)
    yield latencies


def store_families(labels: Mapping[str, str], tasks: Iterable[Any]) -> Iterator[Metric]:
    """Yield the figures of single stores; none unless they are recorded."""
    stores: list[tuple[Sequence[str], StoreFigures]] = [
        ((str(task.id), name), figures) for task in tasks for name, figures in task.store_figures.items()
    ]
    if not stores:
        return
    yield from families(FLUSHES, labels, ["task", "store"], stores)
    seconds = HistogramMetricFamily(_FLUSH, DETAILED[_FLUSH], labels=[*labels, "task", "store"])
    for values, figures in stores:
        _add(seconds, [*labels.values(), *values], figures.seconds)
    yield seconds


def user_families(labels: Mapping[str, str], tasks: Iterable[Any]) -> Iterator[Metric]:
    """Yield the metrics that the processors of some tasks record, by name."""
    samples: dict[str, list[tuple[list[str], Any]]] = {}
    definitions: dict[str, MetricDefinition] = {}
    for task in tasks:
        metrics = task.context.metrics
        definitions.update(metrics.shared.definitions)
        for (name, node, tags), instrument in list(metrics.instruments.items()):
            values = [*labels.values(), str(task.id), node, *map(well_formed, tags)]
            samples.setdefault(name, []).append((values, instrument))
    for name in sorted(samples):
        definition = definitions[name]
        names = [*labels, "task", "node", *definition.tags]
        if definition.kind is Histogram:
            histogram = HistogramMetricFamily(_PREFIX + name, definition.text, labels=names)
            for values, instrument in samples[name]:
                _add(histogram, values, instrument)
            yield histogram
            continue
        make = CounterMetricFamily if definition.kind is Counter else GaugeMetricFamily
        family = make(_PREFIX + name, definition.text, labels=names)
        for values, instrument in samples[name]:
            value: Counter | Gauge = instrument
            family.add_metric(values, value.value)
        yield family


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    total, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), list(histogram.counts), strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.sum)
