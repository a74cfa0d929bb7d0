"""The dashboard of workers: what one worker does with its time, memory and disk, and which tasks it has."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.application import APPLICATION_VARIABLES
from monitoring.dashboards.panels import (
    BLUE,
    GREEN,
    RED,
    STATE_MAPPINGS,
    WORKER,
    YELLOW,
    Board,
    Query,
    Row,
    Stat,
    StateTimeline,
    Table,
    TimeSeries,
    states_query,
)  # fmt: skip

__all__ = ("WORKER_VARIABLES", "dashboard")

WORKER_VARIABLES = (
    *APPLICATION_VARIABLES,
    (
        "worker",
        "Worker",
        'label_values(millpond_worker_state{namespace=~"$namespace",application_id=~"$application"}, worker)',
    ),
)


def _rate(metric: str, by: str = "worker") -> str:
    return f"sum by ({by}) (rate({metric}{{{WORKER}}}[$__rate_interval]))"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return Board(
        uid="millpond-worker",
        title="millpond / Worker",
        text="Workers: their loop, their tasks, their Kafka clients, their memory and disk.",
        variables=WORKER_VARIABLES,
        rows=(
            Row("Now", _NOW),
            Row("Loop", _LOOP),
            Row("Tasks", _TASKS),
            Row("Kafka", _KAFKA),
            Row("Memory, CPU and disk", _RESOURCES),
            Row("Nodes and stores (metrics.recording.level DEBUG)", _DETAILS),
        ),
    ).build()


_NOW = (
    StateTimeline(
        title="State",
        text="What each worker does. A worker in the state error ends, and is started again.",
        queries=[Query(states_query(WORKER), "{{worker}}")],
        mappings=STATE_MAPPINGS,
        width=12,
        height=6,
        alert="WorkerDown",
    ),
    Stat(
        title="Active tasks",
        text="Tasks that run on these workers.",
        queries=[Query(f"sum(millpond_worker_tasks{{{WORKER}}})")],
        height=6,
        steps=((None, BLUE),),
    ),
    Stat(
        title="Busy",
        text="Share of time in which the busiest of these workers processes and commits.",
        queries=[Query(f"max({_rate('millpond_worker_busy_seconds_total')})")],
        unit="percentunit",
        height=6,
        steps=((None, GREEN), (0.8, YELLOW), (0.95, RED)),
        alert="LagGrowing",
    ),
    Stat(
        title="Volume free",
        text="Free part of the volume with the state directory, on the fullest of these workers.",
        queries=[Query(f"min(millpond_worker_volume_free_bytes{{{WORKER}}} / millpond_worker_volume_bytes{{{WORKER}}})")],
        unit="percentunit",
        height=6,
        steps=((None, RED), (0.05, YELLOW), (0.15, GREEN)),
        alert="VolumeFilling",
    ),
    Stat(
        title="Brokers silent",
        text="Time since a broker answered one of these workers; 0 while brokers answer.",
        queries=[Query(f"max(millpond_worker_brokers_silent_seconds{{{WORKER}}})")],
        unit="s",
        height=6,
        steps=((None, GREEN), (10, YELLOW), (60, RED)),
    ),
)  # fmt: skip

_LOOP = (
    TimeSeries(
        title="Records processed",
        text="Records that each worker processes per second.",
        queries=[Query(_rate("millpond_worker_processed_records_total"), "{{worker}}")],
        unit="cps",
    ),
    TimeSeries(
        title="Busy",
        text="Share of time in which each worker processes and commits. Near 100 % it cannot do more: add workers.",
        queries=[Query(_rate("millpond_worker_busy_seconds_total"), "{{worker}}")],
        unit="percentunit",
        maximum=1,
        steps=((None, GREEN), (0.8, YELLOW)),
        alert="LagGrowing",
    ),
    TimeSeries(
        title="Processing",
        text="Share of time in user code and stores; the rest of Busy is commits.",
        queries=[Query(_rate("millpond_worker_process_seconds_total"), "{{worker}}")],
        unit="percentunit",
    ),
    TimeSeries(
        title="Records in a poll",
        text="Records that a poll of the consumer returns on average. Many mean that the worker catches up.",
        queries=[Query(f"{_rate('millpond_worker_polled_records_total')} / ({_rate('millpond_worker_polls_total')} > 0)", "{{worker}}")],
    ),
    TimeSeries(
        title="Duration of a commit, p99",
        text="Time of a commit: flush, delivery of the records, transaction, rows in the state file.",
        queries=[
            Query(
                "histogram_quantile(0.99, sum by (le, worker)"
                f" (rate(millpond_worker_commit_seconds_bucket{{{WORKER}}}[$__rate_interval])))",
                "{{worker}}",
            )
        ],
        unit="s",
    ),
    TimeSeries(
        title="Back to the last commit",
        text="How often a worker went back to its last commit and processed the same records again.",
        queries=[Query(f"sum by (worker) (increase(millpond_worker_recoveries_total{{{WORKER}}}[$__rate_interval]))", "{{worker}}")],
        alert="CommitFailing",
    ),
)  # fmt: skip

_TASKS = (
    Table(
        title="Tasks now",
        text="Tasks that these workers hold, and in which role: active, standby or warm-up. The value is the lag of their state in changelog records.",
        queries=[Query(f"millpond_task_changelog_lag_records{{{WORKER}}}")],
        columns=(("worker", "Worker"), ("task", "Task"), ("role", "Role"), ("Value", "Changelog lag")),
        width=12,
        alert="StandbyLagging",
    ),
    TimeSeries(
        title="Records processed, by task",
        text="Records per second of each active task.",
        queries=[Query(_rate("millpond_task_processed_records_total", "task"), "{{task}}")],
        unit="cps",
        width=12,
    ),
    TimeSeries(
        title="Lag, by task",
        width=6,
        text="Records between the position of each task and the end of its inputs.",
        queries=[Query(f"sum by (task) (millpond_input_lag_records{{{WORKER}}})", "{{task}}")],
        alert="LagGrowing",
    ),
    TimeSeries(
        title="Age of the last record, by task",
        width=6,
        text="Current time minus the timestamp of the last record of each task. It also grows while nothing arrives.",
        queries=[Query(f"max by (task) (millpond_task_record_e2e_latency_seconds{{{WORKER}}})", "{{task}}")],
        unit="s",
    ),
    TimeSeries(
        title="Out of order",
        width=6,
        text="Stream time minus the timestamp of the last record: how late records arrive. Compare it with the grace of windows.",
        queries=[Query(f"max by (task) (millpond_task_record_lateness_seconds{{{WORKER}}})", "{{task}}")],
        unit="s",
        alert="LateRecordsDropped",
    ),
    TimeSeries(
        title="Read ahead",
        width=6,
        text="Records that were read and wait, because another input of the task has none (max.task.idle.ms).",
        queries=[
            Query(f"sum by (task) (millpond_task_buffered_records{{{WORKER}}})", "{{task}}"),
            Query(f"sum(increase(millpond_task_enforced_processing_total{{{WORKER}}}[$__rate_interval]))", "went on without the other input"),
        ],
    ),
)  # fmt: skip

_KAFKA = (
    TimeSeries(
        title="Records written",
        text="Records sent per second, with changelog records.",
        queries=[Query(_rate("millpond_worker_produced_records_total"), "{{worker}}")],
        unit="cps",
    ),
    TimeSeries(
        title="Output that waits",
        text="Records that wait for the next transaction. If they are many, reading pauses.",
        queries=[Query(f"sum by (worker) (millpond_worker_outbox_records{{{WORKER}}})", "{{worker}}")],
    ),
    TimeSeries(
        title="Brokers silent, clients replaced",
        text="Time since a broker answered, single brokers that do not answer, and Kafka clients that were replaced.",
        queries=[
            Query(f"max by (worker) (millpond_worker_brokers_silent_seconds{{{WORKER}}})", "silent, {{worker}}"),
            Query(f"max by (worker) (millpond_worker_brokers_missing{{{WORKER}}})", "missing, {{worker}}"),
            Query(f"sum(increase(millpond_worker_clients_replaced_total{{{WORKER}}}[$__rate_interval]))", "clients replaced"),
        ],
    ),
)  # fmt: skip

_RESOURCES = (
    TimeSeries(
        title="Memory",
        text="Memory of each worker that is in RAM. The limit is spec.resources.limits.memory.",
        queries=[Query(f"max by (worker) (millpond_worker_resident_bytes{{{WORKER}}})", "{{worker}}")],
        unit="bytes",
    ),
    TimeSeries(
        title="CPU",
        text="CPUs that each worker uses, with the threads of Kafka clients and RocksDB.",
        queries=[Query(_rate("millpond_worker_cpu_seconds_total"), "{{worker}}")],
    ),
    TimeSeries(
        title="Volume free",
        text="Free part of the volume with the state directory.",
        queries=[
            Query(
                f"max by (worker) (millpond_worker_volume_free_bytes{{{WORKER}}} / millpond_worker_volume_bytes{{{WORKER}}})",
                "{{worker}}",
            )
        ],
        unit="percentunit",
        maximum=1,
        steps=((None, RED), (0.15, GREEN)),
        alert="VolumeFilling",
    ),
)  # fmt: skip

_DETAILS = (
    TimeSeries(
        title="Records, by node",
        text="Records per second that reach each node of the topology. A node that gets fewer than the one before it drops or filters them.",
        queries=[Query(_rate("millpond_node_processed_records_total", "node"), "{{node}}")],
        unit="cps",
        width=12,
    ),
    TimeSeries(
        title="Dropped records, by node",
        text="Records per second that each node drops: without a key or value, late, or failed.",
        queries=[Query(_rate("millpond_node_dropped_records_total", "node"), "{{node}}")],
        unit="cps",
        width=12,
        alert="LateRecordsDropped",
    ),
    TimeSeries(
        title="Latency of nodes, p99",
        text="Time from a record's timestamp until the node had processed it: sources and last nodes, with TRACE also nodes with stores.",
        queries=[
            Query(
                f"histogram_quantile(0.99, sum by (le, node) (rate(millpond_node_e2e_latency_seconds_bucket{{{WORKER}}}[$__rate_interval])))",
                "{{node}}",
            )
        ],
        unit="s",
    ),
    TimeSeries(
        title="Flush of a store, p99",
        text="Time of a store's flush before a commit, with what the nodes below its record cache do.",
        queries=[
            Query(
                f"histogram_quantile(0.99, sum by (le, store) (rate(millpond_store_flush_seconds_bucket{{{WORKER}}}[$__rate_interval])))",
                "{{store}}",
            )
        ],
        unit="s",
    ),
    TimeSeries(
        title="Changelog records, by store",
        text="Changelog records per second of each store. Compare them with the records of its node: the record cache merges updates of a key.",
        queries=[Query(_rate("millpond_store_changelog_records_total", "store"), "{{store}}")],
        unit="cps",
    ),
)  # fmt: skip
