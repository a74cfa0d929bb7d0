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
    "FLUSHES",
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
    MetricRow(
        "millpond_task_processed_records",
        "Records that the task processed since it started on this worker. Bad when it stands still while "
        "millpond_input_lag_records of the task is above 0.",
        _of("processed"),
        counter=True,
    ),
    MetricRow(
        "millpond_task_late_records",
        "Records of the task that came after their window and its grace had ended: windows dropped them, or results of "
        "a join of two streams may be missing; also counted in millpond_task_dropped_records_total. Bad when it grows: "
        "results lack these records. A record in several windows counts once for each that had closed.",
        lambda task: task.context.late,
        counter=True,
    ),
    MetricRow(
        "millpond_task_failed_records",
        "Records that an exception handler of the task dropped after an error; also counted in "
        "millpond_task_dropped_records_total. Bad when it grows: results lack these records.",
        lambda task: task.context.failed,
        counter=True,
    ),
    MetricRow(
        "millpond_task_dead_letters",
        "Records that exception handlers of the task sent to a dead-letter topic. Bad when it grows: somebody "
        "has to look at them.",
        lambda task: task.context.dead_letters,
        counter=True,
    ),
    MetricRow(
        "millpond_task_enforced_processing",
        "Times that the task processed although one of its inputs was empty, after max.task.idle.ms. Bad when "
        "it grows in a join whose result depends on the order of its inputs.",
        lambda task: task.group.enforced,
        counter=True,
    ),
    MetricRow(
        "millpond_task_punctuations",
        "Times that punctuators of the task ran, on stream time or wall-clock time. Bad when it stands still "
        "although a schedule is due: stream time does not advance, or the loop is busy.",
        _of("punctuated"),
        counter=True,
    ),
    MetricRow(
        "millpond_task_buffered_records",
        "Records of all inputs of the task that were read from Kafka and are not processed yet. Bad when it "
        "stays at buffered.records.per.partition for minutes: the task does not keep up.",
        lambda task: task.group.buffered(),
    ),
    MetricRow(
        "millpond_task_record_lateness_seconds",
        "Seconds by which the timestamp of the last processed record is behind the highest timestamp of the "
        "task (its stream time); 0 for records in order. Bad when it is often above the grace of windows: such"
        " records are dropped.",
        _lateness,
    ),
    MetricRow(
        "millpond_task_record_e2e_latency_seconds",
        "Seconds between the timestamp of the last processed record and the time of the scrape. Bad when it "
        "grows while millpond_processor_caught_up of the task is 0; it also grows when no records arrive, "
        "which is normal.",
        _e2e,
    ),
)

#: Metrics of the dropped records of a task, by reason (`topology.drops`); labels: task, reason.
DROPS = (
    MetricRow(
        "millpond_task_dropped_records",
        "Records that operators and exception handlers of the task dropped, by reason: late, null_key, "
        "null_value, no_lookup_key, expired, outdated, invalid_timestamp, failed. Those of late_for_join were "
        "processed, but came so late that a join of two streams may lack results. Bad when a reason grows that"
        " you do not expect: results lack these records.",
        float,
        counter=True,
    ),
)

#: Metrics of a RecordQueue, the source node of one topic; labels: task, topic. Other nodes are compiled into one call.
INPUTS = (
    MetricRow(
        "millpond_processor_consumed_records",
        "Records that the task read from the topic since it started on this worker. Bad when it stands still "
        "while producers write to the topic.",
        _of("consumed"),
        counter=True,
    ),
    MetricRow(
        "millpond_processor_position_offset",
        "Offset of the next record of the topic partition that the task processes. Bad when it stands still "
        "while producers write to the partition.",
        lambda queue: max(0, int(queue.position)),
    ),
    MetricRow(
        "millpond_processor_buffered_records",
        "Records of the topic partition that were read from Kafka and are not processed yet. Bad when it stays"
        " at buffered.records.per.partition for minutes: the task does not keep up.",
        _of("buffered"),
    ),
    MetricRow(
        "millpond_processor_caught_up",
        "1 when the task has processed the topic partition to its end, 0 otherwise. Bad when it stays 0: the "
        "task is behind.",
        lambda queue: float(queue.at_end and not queue.chunks),
    ),
)

#: Metrics of a node of a task, with `metrics.recording.level` DEBUG or TRACE; labels: task, node.
NODES = (
    MetricRow(
        "millpond_node_processed_records",
        "Records that reached the node of the topology; with metrics.recording.level DEBUG. Bad when it stands"
        " still while the node before it sends records on.",
        lambda node: node.processed,
        counter=True,
    ),
    MetricRow(
        "millpond_node_forwarded_records",
        "Records that the node sent on, and of suppress() and windowed aggregations the results that they "
        "emitted; with metrics.recording.level DEBUG. Bad when it stands still although the node must have "
        "results.",
        lambda node: node.forwarded,
        counter=True,
    ),
    MetricRow(
        "millpond_node_dropped_records",
        "Records that the node dropped, since they had no key or value, were late, or failed; also counted in "
        "millpond_task_dropped_records_total; with metrics.recording.level DEBUG. Bad when it grows and you do"
        " not expect it.",
        lambda node: node.dropped,
        counter=True,
    ),
)

#: Metrics of an InputLoad; labels: task, topic, partition.
INPUT_LAGS = (
    MetricRow(
        "millpond_input_lag_records",
        "Records between the position of the task in the topic partition and the end of the partition: those "
        "that are still to process. Bad when it grows for minutes: records arrive faster than they are "
        "processed.",
        _of("lag"),
    ),
)

#: Metrics of a WorkerLoad.
LOAD = (
    MetricRow(
        "millpond_worker_state_bytes",
        "Bytes of all files in the worker's state directory: the files of its stores, RocksDB's log, which has the "
        "newest rows, and the files of processors; measured every 10 s. Bad when it grows without limit: a store keeps "
        "keys for ever, or windows for too long.",
        _of("state_bytes"),
    ),
    MetricRow(
        "millpond_worker_volume_bytes",
        "Bytes of the file system that has the state directory. Never bad by itself: compare it with "
        "millpond_worker_volume_free_bytes.",
        lambda load: load.volume_bytes or None,
    ),
    MetricRow(
        "millpond_worker_volume_free_bytes",
        "Free bytes of the file system that has the state directory. Bad when it is below 15 % of "
        "millpond_worker_volume_bytes: without space the worker ends.",
        lambda load: load.volume_free_bytes if load.volume_bytes else None,
    ),
)

#: Metrics of a store instance; labels: task, store.
STORES = (
    MetricRow(
        "millpond_store_staged_bytes",
        "Bytes of the store's changes that the next commit writes, in memory. Bad when it stays near "
        "statestore.uncommitted.max.bytes: commits come early.",
        _of("staged_bytes"),
    ),
    MetricRow(
        "millpond_store_cache_bytes",
        "Bytes of the store's rows in memory, with changes for the next commit. Never bad by itself: "
        "rocksdb.row.cache.bytes limits it for all stores together.",
        _of("cache_bytes"),
    ),
    MetricRow(
        "millpond_store_record_cache_bytes",
        "Bytes of the store's updates that are not forwarded yet, in the record cache. Never bad by itself: "
        "statestore.cache.max.bytes limits it for all stores together.",
        lambda store: store.dirty_bytes() if store.caching else None,
    ),
    MetricRow(
        "millpond_store_backend_reads",
        "Reads of single rows that went to RocksDB, since the row was not in memory. Bad when it grows about "
        "as fast as records are processed: rocksdb.row.cache.bytes is too small for the keys in use.",
        _of("backend_reads"),
        counter=True,
    ),
    MetricRow(
        "millpond_store_expired_records",
        "Updates that the store dropped, since their window is older than its retention. Bad when it grows: "
        "results lack these records.",
        _of("expired_puts"),
        counter=True,
    ),
    MetricRow(
        "millpond_store_restored_incomplete",
        "1 if the store of windows was restored from a changelog from which brokers had deleted windows that have not "
        "expired yet, else 0. Bad when it is 1: results of these windows are too small until the application is reset.",
        _of("restored_incomplete"),
    ),
    MetricRow(
        "millpond_store_suppressed_records",
        "Results that suppress() holds back in memory until their windows are final or their time limit has passed. "
        "Bad when it grows without limit: windows do not close, because stream time does not advance.",
        _of("num_records"),
    ),
    MetricRow(
        "millpond_store_suppressed_bytes",
        "Bytes of keys, values and headers of the results that suppress() holds back; without a limit in bytes, as of "
        "the last commit. Bad when it nears the limit of the buffer: it then emits early, or the worker ends, as the "
        "topology says.",
        _of("buffer_size"),
    ),
)

#: Metrics of the StoreFigures of a store, with `metrics.recording.level` DEBUG or TRACE; labels: task, store.
FLUSHES = (
    MetricRow(
        "millpond_store_changelog_records",
        "Records that the store's flushes sent to its changelog; with metrics.recording.level DEBUG. Bad when it grows "
        "about as fast as records are processed, although keys repeat: the record cache is too small to merge updates.",
        lambda figures: figures.records,
        counter=True,
    ),
)

#: Metrics of a held task in any role; labels: task, role.
HELD = (
    MetricRow(
        "millpond_task_held",
        "1 for each task that the worker holds, with its role. Bad when a task has no series with the role "
        "active on any worker, or has two.",
        lambda held: 1.0,
    ),
    MetricRow(
        "millpond_task_changelog_lag_records",
        "Changelog records between the worker's copy of the task's state and the end of the changelogs. Bad "
        "when that of a standby stays above acceptable.recovery.lag: a take-over would have to restore first.",
        _of("lag"),
    ),
)

#: Metrics of a Restoration; labels: store, partition.
RESTORATIONS = (
    MetricRow(
        "millpond_restore_records",
        "Changelog records that were applied to the copy of the store. Bad when it stands still while "
        "millpond_restore_remaining_records is above 0.",
        _of("restored"),
        counter=True,
    ),
    MetricRow(
        "millpond_restore_remaining_records",
        "Changelog records that the copy of the store has still to read, as a difference of offsets. Bad when "
        "it does not fall: the task waits for it.",
        _of("remaining"),
    ),
)

#: Metrics of the worker's SnapshotRestorer, if a location for snapshots is set.
BOOTSTRAP = (
    MetricRow(
        "millpond_bootstrap_waiting_tasks",
        "Tasks that wait for their state from a snapshot. Bad when it stays above 0 for minutes: the object "
        "store is slow or does not answer.",
        _of("waiting"),
    ),
    MetricRow(
        "millpond_bootstrap_fetched_bytes",
        "Bytes of snapshot files that were fetched. Bad when it stands still while "
        "millpond_bootstrap_waiting_tasks is above 0.",
        _of("fetched"),
        counter=True,
    ),
    MetricRow(
        "millpond_bootstrap_ingested_rows",
        "Rows of stores that were loaded from snapshots. Bad when it stands still while "
        "millpond_bootstrap_waiting_tasks is above 0.",
        _of("ingested_rows"),
        counter=True,
    ),
    MetricRow(
        "millpond_bootstrap_ingested_stores",
        "Partitions of stores whose state came from a snapshot. Never bad by itself: compare it with "
        "millpond_bootstrap_refused_stores_total.",
        _of("ingested_stores"),
        counter=True,
    ),
    MetricRow(
        "millpond_bootstrap_refused_stores",
        "Partitions of stores that replay their whole changelog, because the snapshot cannot be used. Bad when"
        " it grows: restoring takes much longer; the log has the reason.",
        _of("rejected_stores"),
        counter=True,
    ),
)

#: Metrics of the worker's StateFile.
ROCKSDB = tuple(
    MetricRow(f"millpond_rocksdb_{name}", text, lambda state_file, name=name: state_file.usage().get(name))  # type: ignore[misc]
    for name, text in (
        (
            "block_cache_bytes",
            "Bytes in RocksDB's block cache, with the write buffers that are charged to it. Never bad by itself: "
            "rocksdb.block.cache.bytes limits it.",
        ),
        (
            "memtable_bytes",
            "Bytes in the write buffers (memtables) of all stores. Bad when it stays above "
            "rocksdb.write.buffer.bytes: the disk is too slow for the flushes.",
        ),
        (
            "sst_bytes",
            "Bytes of the files (SST) of all stores, on disk, without RocksDB's log: 0 until the first flush. Bad when "
            "it grows without limit: a store keeps keys for ever, or windows for too long.",
        ),
        (
            "open_iterators",
            "Iterators over stores that are open now. Bad when it grows: each keeps overwritten rows on disk until"
            " it is read to its end or collected.",
        ),
        (
            "oldest_iterator_age_seconds",
            "Seconds for which the oldest open iterator has been open; 0 without one. Bad when it is above some "
            "minutes: code keeps an iterator, and with it overwritten rows on disk.",
        ),
        (
            "running_compactions",
            "Compactions of RocksDB's files that run now. Bad when it stays above 0 for hours: the disk cannot "
            "keep up with the writes.",
        ),
        (
            "running_flushes",
            "Flushes of RocksDB's write buffers to disk that run now. Bad when it stays above 0: the disk cannot "
            "keep up with the writes.",
        ),
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
