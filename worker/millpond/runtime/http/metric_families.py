"""The metric families of tasks, inputs, stores and RocksDB: one table row per family, read at each scrape.

Names are `millpond_<part>_<what>_<unit>`; counters get Prometheus' `_total`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

__all__ = (
    "BOOTSTRAP",
    "DROPS",
    "HELD",
    "INPUTS",
    "INPUT_LAGS",
    "LOAD",
    "NODES",
    "RESTORATIONS",
    "ROCKSDB",
    "STORES",
    "TASKS",
    "MetricRow",
    "families",
)


class MetricRow(NamedTuple):
    """One metric family."""

    name: str
    text: str
    """Help text."""
    value: Callable[[Any], float | None]
    """Reads the value of an object; returns None if the metric does not apply to it."""
    counter: bool = False
    """Whether the value only increases."""


def _lateness(task: Any) -> float | None:
    if task.latest_timestamp < 0:
        return None
    return max(0, int(task.context.stream_time) - int(task.latest_timestamp)) / 1000


def _e2e(task: Any) -> float | None:
    return None if task.latest_timestamp < 0 else time.time() - int(task.latest_timestamp) / 1000


def _of(attribute: str) -> Callable[[Any], float | None]:
    """Return a function that reads an attribute or calls a method of an object; it returns None for a missing one."""

    def value(source: Any) -> float | None:
        found = getattr(source, attribute, None)
        return float(found() if callable(found) else found) if found is not None else None

    return value


#: Metrics of a StreamTask; label: task.
TASKS = (
    MetricRow("millpond_task_processed_records", "Records that the task processed.", _of("processed"), counter=True),
    MetricRow(
        "millpond_task_late_records",
        "Records dropped because they came after their window and its grace had ended; also counted as dropped.",
        lambda task: task.context.late,
        counter=True,
    ),
    MetricRow(
        "millpond_task_failed_records",
        "Records dropped by an exception handler after an error; also counted as dropped.",
        lambda task: task.context.failed,
        counter=True,
    ),
    MetricRow(
        "millpond_task_dead_letters",
        "Records sent to dead-letter topics by exception handlers.",
        lambda task: task.context.dead_letters,
        counter=True,
    ),
    MetricRow(
        "millpond_task_enforced_processing",
        "Times the task processed although an input was empty, after max.task.idle.ms.",
        lambda task: task.group.enforced,
        counter=True,
    ),
    MetricRow("millpond_task_punctuations", "Times that punctuators of the task ran.", _of("punctuated"), counter=True),
    MetricRow(
        "millpond_task_buffered_records",
        "Records of all inputs of the task that were read and are not processed yet.",
        lambda task: task.group.buffered(),
    ),
    MetricRow("millpond_task_record_lateness_seconds", "Stream time minus the last record's timestamp.", _lateness),
    MetricRow("millpond_task_record_e2e_latency_seconds", "Current time minus the last record's timestamp.", _e2e),
)

#: Metrics of the dropped records of a task, by reason (`topology.drops`); labels: task, reason.
DROPS = (
    MetricRow(
        "millpond_task_dropped_records",
        "Records dropped by operators and exception handlers, by reason: late, null_key, null_value, no_lookup_key, "
        "expired, outdated, invalid_timestamp, failed.",
        float,
        counter=True,
    ),
)

#: Metrics of a RecordQueue, the source node of one topic; labels: task, topic. Other nodes are compiled into one call.
INPUTS = (
    MetricRow("millpond_processor_consumed_records", "Records read from the topic.", _of("consumed"), counter=True),
    MetricRow(
        "millpond_processor_position_offset",
        "Next offset of the topic that the task processes.",
        lambda queue: max(0, int(queue.position)),
    ),
    MetricRow(
        "millpond_processor_buffered_records",
        "Records of the topic that were read and are not processed yet.",
        _of("buffered"),
    ),
    MetricRow(
        "millpond_processor_caught_up",
        "1 when the end of the topic was reached and all records are processed.",
        lambda queue: float(queue.at_end and not queue.chunks),
    ),
)

#: Metrics of a node of a task, with `metrics.recording.level` DEBUG or TRACE; labels: task, node.
NODES = (
    MetricRow(
        "millpond_node_processed_records", "Records that reached the node.", lambda node: node.processed, counter=True
    ),
    MetricRow(
        "millpond_node_forwarded_records",
        "Records that the node sent on; of suppress() and windowed aggregations, the results that it emitted.",
        lambda node: node.forwarded,
        counter=True,
    ),
    MetricRow(
        "millpond_node_dropped_records",
        "Records that the node dropped (without a key or value, late, or failed); also counted for the task.",
        lambda node: node.dropped,
        counter=True,
    ),
)

#: Metrics of an InputLoad; labels: task, topic.
INPUT_LAGS = (
    MetricRow("millpond_input_lag_records", "Records of the topic that the task has not processed.", _of("lag")),
)

#: Metrics of a WorkerLoad.
LOAD = (
    MetricRow("millpond_worker_state_bytes", "Size of the state's data files.", _of("state_bytes")),
    MetricRow(
        "millpond_worker_volume_bytes",
        "Size of the file system with the state.",
        lambda load: load.volume_bytes or None,
    ),
    MetricRow(
        "millpond_worker_volume_free_bytes",
        "Free space on the file system with the state.",
        lambda load: load.volume_free_bytes if load.volume_bytes else None,
    ),
)

#: Metrics of a store instance; labels: task, store.
STORES = (
    MetricRow(
        "millpond_store_staged_bytes", "Size of the store's changes that the next commit writes.", _of("staged_bytes")
    ),
    MetricRow(
        "millpond_store_cache_bytes",
        "Size of the store's entries in memory, with changes for the next commit.",
        _of("cache_bytes"),
    ),
    MetricRow(
        "millpond_store_record_cache_bytes",
        "Size of the store's updates that are not forwarded yet (statestore.cache.max.bytes).",
        lambda store: store.dirty_bytes() if store.caching else None,
    ),
    MetricRow(
        "millpond_store_backend_reads",
        "Reads of the store that memory did not answer.",
        _of("backend_reads"),
        counter=True,
    ),
    MetricRow(
        "millpond_store_expired_records",
        "Updates to windows that the store does not keep any more.",
        _of("expired_puts"),
        counter=True,
    ),
    MetricRow(
        "millpond_store_suppressed_records",
        "Results that suppress() holds back, since they are not final yet.",
        _of("num_records"),
    ),
    MetricRow(
        "millpond_store_suppressed_bytes",
        "Size of the results that suppress() holds back, since they are not final yet.",
        _of("buffer_size"),
    ),
)

#: Metrics of a held task in any role; labels: task, role.
HELD = (
    MetricRow("millpond_task_held", "1 for each task that the worker holds, with its role.", lambda held: 1.0),
    MetricRow(
        "millpond_task_changelog_lag_records",
        "Changelog records between the copy of the task's state and the ends of the changelogs.",
        _of("lag"),
    ),
)

#: Metrics of a Restoration; labels: store, partition.
RESTORATIONS = (
    MetricRow(
        "millpond_restore_records", "Changelog records applied to the copy of the store.", _of("restored"), counter=True
    ),
    MetricRow(
        "millpond_restore_remaining_records",
        "Changelog offsets that the copy of the store has still to read.",
        _of("remaining"),
    ),
)

#: Metrics of the worker's SnapshotRestorer, if a location for snapshots is set.
BOOTSTRAP = (
    MetricRow("millpond_bootstrap_waiting_tasks", "Tasks that wait for a snapshot.", _of("waiting")),
    MetricRow("millpond_bootstrap_fetched_bytes", "Bytes of snapshot files fetched.", _of("fetched"), counter=True),
    MetricRow("millpond_bootstrap_ingested_rows", "Rows ingested from snapshots.", _of("ingested_rows"), counter=True),
    MetricRow(
        "millpond_bootstrap_ingested_stores",
        "Store partitions restored from a snapshot.",
        _of("ingested_stores"),
        counter=True,
    ),
    MetricRow(
        "millpond_bootstrap_refused_stores",
        "Store partitions whose changelog is replayed because the snapshot cannot be used.",
        _of("rejected_stores"),
        counter=True,
    ),
)

#: Metrics of the worker's StateFile.
ROCKSDB = tuple(
    MetricRow(f"millpond_rocksdb_{name}", text, lambda state_file, name=name: state_file.usage().get(name))  # type: ignore[misc]
    for name, text in (
        ("block_cache_bytes", "Block cache in use, with the write buffers charged to it."),
        ("memtable_bytes", "Write buffers of all stores."),
        ("sst_bytes", "Files of all stores."),
        ("open_iterators", "Open iterators; each keeps overwritten rows until it is read to its end or collected."),
        ("oldest_iterator_age_seconds", "Time for which the oldest open iterator has been open."),
        ("running_compactions", "Running compactions."),
        ("running_flushes", "Running flushes."),
    )
)


def families(
    rows: Iterable[MetricRow],
    labels: Mapping[str, str],
    more: Sequence[str],
    sources: Iterable[tuple[Sequence[str], Any]],
) -> Iterator[Metric]:
    """Yield the metric families of some rows.

    Args:
        rows: the rows of the families.
        labels: labels of every sample, with their values.
        more: names of additional labels.
        sources: values of the additional labels, and the object whose metrics to read.
    """
    labelled = [([*labels.values(), *values], source) for values, source in sources]
    for row in rows:
        make = CounterMetricFamily if row.counter else GaugeMetricFamily
        family = make(row.name, row.text, labels=[*labels, *more])
        for values, source in labelled:
            value = _read(row, source)
            if value is not None:
                family.add_metric(values, value)
        yield family


def _read(row: MetricRow, source: Any) -> float | None:
    try:
        return row.value(source)
    except RuntimeError:
        return None  # the worker's thread changed a collection during the read: the next scrape reads it
