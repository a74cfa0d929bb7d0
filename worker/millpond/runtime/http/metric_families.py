"""What a scrape shows of tasks, inputs, stores and RocksDB: each figure a row of a table, read when somebody asks.

Names are `millpond_<part>_<what>_<unit>`, after semantics.md 1.8; counters get Prometheus' `_total`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = ("BOOTSTRAP", "HELD", "INPUTS", "RESTORATIONS", "ROCKSDB", "STORES", "TASKS", "MetricRow", "families")


class MetricRow(NamedTuple):
    """One metric family."""

    name: str
    text: str
    """What it says."""
    value: Callable[[Any], float | None]
    """Reads it; None where it does not apply."""
    counter: bool = False
    """Whether it only grows."""


def _lateness(task: Any) -> float | None:
    if task.latest_timestamp < 0:
        return None
    return max(0, int(task.context.stream_time) - int(task.latest_timestamp)) / 1000


def _e2e(task: Any) -> float | None:
    return None if task.latest_timestamp < 0 else time.time() - int(task.latest_timestamp) / 1000


def _of(attribute: str) -> Callable[[Any], float | None]:
    """An attribute, or what a method of that name answers; None where there is none."""

    def value(thing: Any) -> float | None:
        found = getattr(thing, attribute, None)
        return float(found() if callable(found) else found) if found is not None else None

    return value


#: Of a StreamTask; label: task.
TASKS = (
    MetricRow("millpond_task_processed_records", "Records processed.", _of("processed"), counter=True),
    MetricRow(
        "millpond_task_dropped_records",
        "Records dropped by operators and handlers.",
        lambda task: task.context.dropped,
        counter=True,
    ),
    MetricRow(
        "millpond_task_enforced_processing",
        "Runs past max.task.idle.ms.",
        lambda task: task.group.enforced,
        counter=True,
    ),
    MetricRow("millpond_task_punctuations", "Punctuators fired.", _of("punctuated"), counter=True),
    MetricRow("millpond_task_buffered_records", "Records read ahead.", lambda task: task.group.buffered()),
    MetricRow("millpond_task_record_lateness_seconds", "Stream time less the last record's timestamp.", _lateness),
    MetricRow("millpond_task_record_e2e_latency_seconds", "Now less the last record's timestamp.", _e2e),
)

#: Of a RecordQueue, the source node of one topic; labels: task, topic. What follows a source is one compiled call.
INPUTS = (
    MetricRow("millpond_processor_consumed_records", "Records read from the topic.", _of("consumed"), counter=True),
    MetricRow(
        "millpond_processor_position_offset", "Next offset to process.", lambda queue: max(0, int(queue.position))
    ),
    MetricRow("millpond_processor_buffered_records", "Records read ahead.", _of("buffered")),
    MetricRow(
        "millpond_processor_caught_up",
        "1 when nothing more was in the topic and all of it is processed.",
        lambda queue: float(queue.at_end and not queue.chunks),
    ),
)

#: Of a store instance; labels: task, store.
STORES = (
    MetricRow("millpond_store_staged_bytes", "State staged for the next commit.", _of("staged_bytes")),
    MetricRow("millpond_store_cache_bytes", "Entries held in memory, staged ones included.", _of("cache_bytes")),
    MetricRow(
        "millpond_store_record_cache_bytes",
        "Updates not yet sent on (statestore.cache.max.bytes).",
        lambda store: store.dirty_bytes() if store.caching else None,
    ),
    MetricRow(
        "millpond_store_backend_reads", "Reads that memory could not answer.", _of("backend_reads"), counter=True
    ),
    MetricRow(
        "millpond_store_expired_records", "Updates to windows past retention.", _of("expired_puts"), counter=True
    ),
    MetricRow("millpond_store_suppressed_records", "Results held back until they are final.", _of("num_records")),
    MetricRow("millpond_store_suppressed_bytes", "Their size.", _of("buffer_size")),
)

#: Of a task that is held, in whatever role; labels: task, role.
HELD = (
    MetricRow("millpond_task_held", "1 for a task the worker holds.", lambda held: 1.0),
    MetricRow("millpond_task_changelog_lag_records", "Changelog records its stores are behind.", _of("lag")),
)

#: Of a Restoration; labels: store, partition.
RESTORATIONS = (
    MetricRow("millpond_restore_records", "Changelog records applied.", _of("restored"), counter=True),
    MetricRow("millpond_restore_remaining_records", "Offsets to go.", _of("remaining")),
)

#: Of the worker's Bootstrap, where a location for snapshots is set.
BOOTSTRAP = (
    MetricRow("millpond_bootstrap_waiting_tasks", "Tasks that wait for a snapshot.", _of("waiting")),
    MetricRow("millpond_bootstrap_fetched_bytes", "Bytes of snapshot files fetched.", _of("fetched"), counter=True),
    MetricRow("millpond_bootstrap_ingested_rows", "Rows taken from snapshots.", _of("ingested_rows"), counter=True),
    MetricRow(
        "millpond_bootstrap_ingested_stores",
        "Store partitions restored from a snapshot.",
        _of("ingested_stores"),
        counter=True,
    ),
    MetricRow(
        "millpond_bootstrap_refused_stores",
        "Store partitions whose changelog is replayed because the snapshot cannot be used.",
        _of("refused_stores"),
        counter=True,
    ),
)

#: Of the worker's StateFile.
ROCKSDB = tuple(
    MetricRow(f"millpond_rocksdb_{name}", text, lambda state_file, name=name: state_file.figures().get(name))  # type: ignore[misc]
    for name, text in (
        ("block_cache_bytes", "Block cache in use, write buffers charged to it included."),
        ("memtable_bytes", "Write buffers of all stores."),
        ("sst_bytes", "Files of all stores."),
        ("running_compactions", "Compactions at work."),
        ("running_flushes", "Flushes at work."),
    )
)


def families(
    figures: Iterable[MetricRow],
    labels: Mapping[str, str],
    more: Sequence[str],
    things: Iterable[tuple[Sequence[str], Any]],
) -> Iterator[Metric]:
    """The families of some figures.

    Args:
        figures: what to show.
        labels: of every sample.
        more: names of further labels.
        things: values of those labels, and what to read the figures of.
    """
    found = [([*labels.values(), *values], thing) for values, thing in things]
    for figure in figures:
        make = CounterMetricFamily if figure.counter else GaugeMetricFamily
        family = make(figure.name, figure.text, labels=[*labels, *more])
        for values, thing in found:
            value = _read(figure, thing)
            if value is not None:
                family.add_metric(values, value)
        yield family


def _read(figure: MetricRow, thing: Any) -> float | None:
    try:
        return figure.value(thing)
    except RuntimeError:
        return None  # the worker's thread changed what was being looked at: the next scrape sees it
