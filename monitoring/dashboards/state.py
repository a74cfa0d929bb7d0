"""The dashboard of state: sizes, RocksDB, restoring, standbys, snapshots."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards.panels import (
    APP,
    BLUE,
    GREEN,
    RED,
    WORKER,
    YELLOW,
    Board,
    Query,
    Row,
    Stat,
    TimeSeries,
)  # fmt: skip
from monitoring.dashboards.worker import WORKER_VARIABLES
from monitoring.rules.applications import ACCEPTABLE_RECOVERY_LAG

__all__ = ("dashboard",)


def _sum(metric: str, by: str) -> str:
    return f"sum by ({by}) ({metric}{{{WORKER}}})"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{WORKER}}}[$__rate_interval]))"


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return Board(
        uid="millpond-state",
        title="millpond / State and snapshots",
        text="State of applications: its size, how it is restored, the lag of standbys, and the age of snapshots.",
        variables=WORKER_VARIABLES,
        rows=(
            Row("Now", _NOW),
            Row("Size", _SIZE),
            Row("Restoring and standbys", _RESTORING),
            Row("Snapshots", _SNAPSHOTS),
            Row("RocksDB", _ROCKSDB),
        ),
    ).build()


_NOW = (
    Stat(
        title="State on disk",
        text="Size of the state directories of these workers.",
        queries=[Query(f"sum(millpond_worker_state_bytes{{{WORKER}}})")],
        unit="bytes",
        width=4,
        steps=((None, BLUE),),
        alert="VolumeFilling",
    ),
    Stat(
        title="To restore",
        text="Changelog records that are still to be read by active tasks and standbys.",
        queries=[Query(f"sum(millpond_restore_remaining_records{{{WORKER}}}) or vector(0)")],
        width=4,
        steps=((None, GREEN), (1_000_000, YELLOW)),
        alert="RestoreStuck",
    ),
    Stat(
        title="Standbys",
        text="Copies of tasks that can take over.",
        queries=[Query(f'count(millpond_task_held{{{WORKER},role="standby"}}) or vector(0)')],
        width=4,
        steps=((None, BLUE),),
    ),
    Stat(
        title="Largest lag of a standby",
        text="Changelog records between a standby and the end of its changelogs. Above acceptable.recovery.lag it does not take over at once.",
        queries=[Query(f'max(millpond_task_changelog_lag_records{{{WORKER},role="standby"}}) or vector(0)')],
        width=4,
        steps=((None, GREEN), (ACCEPTABLE_RECOVERY_LAG, RED)),
        alert="StandbyLagging",
    ),
    Stat(
        title="Oldest snapshot",
        text="Time since the last successful snapshot, of the application whose snapshot is the oldest.",
        queries=[Query(f"time() - min(millpond_streamapp_last_snapshot_timestamp_seconds{{{APP}}})")],
        unit="s",
        width=4,
        no_value="no snapshots",
        steps=((None, GREEN), (2 * 86400, YELLOW)),
        alert="SnapshotOld",
    ),
    Stat(
        title="Failing snapshots",
        text="StreamApps whose snapshots fail (condition SnapshotsFailing).",
        queries=[Query(f'count(millpond_streamapp_condition{{{APP},type="SnapshotsFailing",status="True"}}) or vector(0)')],
        width=4,
        steps=((None, GREEN), (1, RED)),
        alert="SnapshotsFailing",
    ),
)  # fmt: skip

_SIZE = (
    TimeSeries(
        title="State on disk, by worker",
        text="Size of each worker's state directory.",
        queries=[Query(_sum("millpond_worker_state_bytes", "worker"), "{{worker}}")],
        unit="bytes",
        stacked=True,
        alert="VolumeFilling",
    ),
    TimeSeries(
        title="In memory, by store",
        text="Entries of stores in memory, with changes that the next commit writes.",
        queries=[Query(_sum("millpond_store_cache_bytes", "store"), "{{store}}")],
        unit="bytes",
        stacked=True,
    ),
    TimeSeries(
        title="Staged for the next commit, by store",
        text="Changes of stores since the last commit. Above statestore.uncommitted.max.bytes a commit is due.",
        queries=[Query(_sum("millpond_store_staged_bytes", "store"), "{{store}}")],
        unit="bytes",
        stacked=True,
    ),
    TimeSeries(
        title="Reads from disk, by store",
        text="Reads that memory did not answer.",
        queries=[Query(_rate("millpond_store_backend_reads_total", "store"), "{{store}}")],
        unit="ops",
    ),
    TimeSeries(
        title="Updates not forwarded yet",
        text="Size of updates in record caches (statestore.cache.max.bytes); the next commit forwards them.",
        queries=[Query(f"{_sum('millpond_store_record_cache_bytes', 'store')}", "{{store}}")],
        unit="bytes",
    ),
    TimeSeries(
        title="Suppressed results",
        text="Results that are not final yet (suppress), and their size.",
        queries=[
            Query(f"sum(millpond_store_suppressed_records{{{WORKER}}}) or vector(0)", "results"),
            Query(f"sum(millpond_store_suppressed_bytes{{{WORKER}}}) or vector(0)", "bytes"),
        ],
    ),
)  # fmt: skip

_RESTORING = (
    TimeSeries(
        title="Changelog records left, by store",
        width=6,
        text="Changelog records that are still to be read, by active tasks that restore and by standbys.",
        queries=[Query(_sum("millpond_restore_remaining_records", "store"), "{{store}}")],
        alert="RestoreStuck",
    ),
    TimeSeries(
        title="Restoring, by worker",
        width=6,
        text="Changelog records that each worker applies per second.",
        queries=[Query(_rate("millpond_restore_records_total", "worker"), "{{worker}}")],
        unit="cps",
        alert="RestoreStuck",
    ),
    TimeSeries(
        title="Lag of standbys",
        width=4,
        text="Changelog records between a standby and the end, by task.",
        queries=[
            Query(f'max by (task) (millpond_task_changelog_lag_records{{{WORKER},role="standby"}})', "{{task}}")
        ],
        steps=((None, GREEN), (ACCEPTABLE_RECOVERY_LAG, RED)),
        alert="StandbyLagging",
    ),
    TimeSeries(
        title="Tasks held, by role",
        width=4,
        text="Tasks that workers hold, by role: active, standby, or warm-up for a move.",
        queries=[Query(f"count by (role) (millpond_task_held{{{WORKER}}})", "{{role}}")],
        stacked=True,
    ),
    TimeSeries(
        title="Incomplete stores",
        width=4,
        text="Partitions of stores of windows that were restored although brokers had deleted windows from the changelog. Their results are too small.",
        queries=[Query(_sum("millpond_store_restored_incomplete", "store"), "{{store}}")],
        steps=((None, GREEN), (1, RED)),
        alert="StoreIncomplete",
    ),
)  # fmt: skip

_SNAPSHOTS = (
    TimeSeries(
        title="Age of the last snapshot",
        text="Time since the last successful snapshot of each application.",
        queries=[Query(f"time() - millpond_streamapp_last_snapshot_timestamp_seconds{{{APP}}}", "{{application_id}}")],
        unit="s",
        alert="SnapshotOld",
    ),
    TimeSeries(
        title="Loading snapshots",
        text="Bytes per second of snapshot files that workers fetch, and tasks that wait for a snapshot.",
        queries=[
            Query(f"sum(rate(millpond_bootstrap_fetched_bytes_total{{{WORKER}}}[$__rate_interval])) or vector(0)", "bytes per second"),
            Query(f"sum(millpond_bootstrap_waiting_tasks{{{WORKER}}}) or vector(0)", "tasks that wait"),
        ],
        alert="RestoreStuck",
    ),
    TimeSeries(
        title="Stores restored from snapshots",
        text="Store partitions that were restored from a snapshot, and those whose changelog is replayed because the snapshot cannot be used.",
        queries=[
            Query(f"sum(millpond_bootstrap_ingested_stores_total{{{WORKER}}}) or vector(0)", "from a snapshot"),
            Query(f"sum(millpond_bootstrap_refused_stores_total{{{WORKER}}}) or vector(0)", "snapshot not usable"),
        ],
    ),
)  # fmt: skip

_ROCKSDB = (
    TimeSeries(
        title="Files",
        text="Size of RocksDB's files of all stores.",
        queries=[Query(_sum("millpond_rocksdb_sst_bytes", "worker"), "{{worker}}")],
        unit="bytes",
    ),
    TimeSeries(
        title="Block cache and write buffers",
        text="Memory of RocksDB: cached blocks, and write buffers, which are charged to the cache.",
        queries=[
            Query(f"sum(millpond_rocksdb_block_cache_bytes{{{WORKER}}})", "block cache"),
            Query(f"sum(millpond_rocksdb_memtable_bytes{{{WORKER}}})", "write buffers"),
        ],
        unit="bytes",
    ),
    TimeSeries(
        title="Compactions and flushes in progress",
        text="Background work of RocksDB. If compactions never end, writes are slowed down.",
        queries=[
            Query(f"sum(millpond_rocksdb_running_compactions{{{WORKER}}})", "compactions"),
            Query(f"sum(millpond_rocksdb_running_flushes{{{WORKER}}})", "flushes"),
        ],
    ),
)  # fmt: skip
