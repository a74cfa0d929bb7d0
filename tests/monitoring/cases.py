"""What makes each alert fire, what ends it, and what must not make it fire. Times are minutes.

Values are in promtool's notation: `0x9` is ten zeros, `0+60x9` grows by 60, `_x9` is ten missing samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ("FIRING", "QUIET", "Firing", "Quiet")

W = 'namespace="shop",application_id="delays",worker="delays-0"'
S = 'namespace="shop",name="delays",application_id="delays"'
WORKER = {"namespace": "shop", "application_id": "delays", "worker": "delays-0"}
APP = {"namespace": "shop", "application_id": "delays"}
STREAM_APP = {"namespace": "shop", "name": "delays", "application_id": "delays"}
O = 'namespace="millpond-system",instance="operator-0",pod="operator-0"'  # noqa: E741
OPERATOR = {"namespace": "millpond-system", "instance": "operator-0", "pod": "operator-0"}


@dataclass(frozen=True)
class Firing:
    """Series with which an alert fires, and later ends."""

    alert: str
    severity: str
    series: dict[str, str]
    labels: dict[str, str]
    """Of the alert, without severity and part_of."""
    summary: str
    """"" where the other severity fires as well."""
    fires: int
    ends: int


@dataclass(frozen=True)
class Quiet:
    """Series with which an alert never fires."""

    alert: str
    why: str
    series: dict[str, str] = field(default_factory=dict)
    until: int = 60


def _condition(type: str, status: str, reason: str) -> str:
    return f'millpond_streamapp_condition{{{S},type="{type}",status="{status}",reason="{reason}"}}'


def _latency(window: str, severity: str, fires: int, ends: int, bad: int, good: int) -> Firing:
    """`bad` minutes with slow commits only, then `good` minutes with fast ones."""
    return Firing(
        "EndToEndLatencyHigh", severity,
        {
            f'millpond_worker_e2e_latency_seconds_bucket{{{W},le="10.0"}}': f"0x{bad} 60+60x{good}",
            f'millpond_worker_e2e_latency_seconds_bucket{{{W},le="+Inf"}}': f"0+60x{bad + good}",
            f"millpond_worker_e2e_latency_seconds_count{{{W}}}": f"0+60x{bad + good}",
        },
        APP | {"window": window}, "", fires, ends,
    )  # fmt: skip


def _stale(window: str, severity: str, fires: int, ends: int) -> Firing:
    return Firing(
        "DataStale", severity,
        {
            f'millpond_task_record_e2e_latency_seconds{{{W},task="0_0"}}': "0+60x59 1x1000",
            f'millpond_task_record_lateness_seconds{{{W},task="0_0"}}': "0x1059",
            f'millpond_processor_caught_up{{{W},task="0_0",topic="in"}}': "0x59 1x1000",
        },
        APP | {"window": window}, "", fires, ends,
    )  # fmt: skip


FIRING = (
    Firing(
        "WorkerDown", "warning",
        {
            f'millpond_streamapp_workers{{{S},state="wanted"}}': "3x40",
            f'millpond_streamapp_workers{{{S},state="ready"}}': "3x4 2x14 3x40",
            _condition("Progressing", "True", "Recovering"): "_x4 1x14 _x40",
        },
        STREAM_APP, "StreamApp shop/delays: 1 workers are not ready", 12, 25,
    ),
    Firing(
        "TaskNotRunning", "critical",
        {
            f'millpond_streamapp_tasks{{{S},state="total"}}': "8x40",
            f'millpond_streamapp_tasks{{{S},state="running"}}': "8x4 6x14 8x40",
        },
        STREAM_APP, "StreamApp shop/delays: 2 tasks do not run", 12, 25,
    ),
    Firing(
        "LagGrowing", "warning",
        {f'millpond_input_lag_records{{{W},task="0_0",topic="in"}}': "0+1000x40 0x40"},
        APP | {"topic": "in"}, "Application delays: the lag of in grows, to 30k records", 30, 50,
    ),
    Firing(
        "PartitionStuck", "critical",
        {
            f'millpond_input_lag_records{{{W},task="0_0",topic="in",partition="0"}}': "0x60",
            f'millpond_input_lag_records{{{W},task="0_1",topic="in",partition="1"}}': "0x5 30x30 0x25",
            f'millpond_processor_position_offset{{{W},task="0_0",topic="in"}}': "0+10x60",
            f'millpond_processor_position_offset{{{W},task="0_1",topic="in"}}': "0+10x5 50x30 60+10x25",
        },
        APP | {"task": "0_1", "topic": "in", "partition": "1"},
        "Application delays: partition 1 of in is stuck, 30 records wait", 30, 55,
    ),
    Firing(
        "CommitFailing", "critical",
        {f'millpond_worker_commit_failures_total{{{W},reason="error"}}': "0+1x20 20x40"},
        WORKER, "Worker delays-0 of delays: commits fail (10 in 10 minutes)", 20, 45,
    ),
    Firing(
        "RestoreStuck", "critical",
        {
            f'millpond_restore_remaining_records{{{W},store="counts",partition="0"}}': "500x30 0x30",
            f'millpond_restore_records_total{{{W},store="counts",partition="0"}}': "100x60",
        },
        WORKER | {"store": "counts", "partition": "0"},
        "Worker delays-0 of delays: restoring state makes no progress", 20, 45,
    ),
    Firing(
        "RestoreStuck", "critical",
        {
            f"millpond_bootstrap_waiting_tasks{{{W}}}": "1x30 0x30",
            f"millpond_bootstrap_fetched_bytes_total{{{W}}}": "5x60",
            f"millpond_bootstrap_ingested_rows_total{{{W}}}": "5x60",
        },
        WORKER, "Worker delays-0 of delays: restoring state makes no progress", 20, 45,
    ),
    Firing(
        "StandbyLagging", "warning",
        {f'millpond_task_changelog_lag_records{{{W},task="0_1",role="standby"}}': "0+1000x60 0x30"},
        WORKER | {"task": "0_1"}, "Worker delays-0 of delays: its standby of task 0_1 falls behind", 45, 80,
    ),
    Firing(
        "StoreIncomplete", "critical",
        {
            f'millpond_store_restored_incomplete{{{W},task="0_0",store="counts"}}': "0x60",
            f'millpond_store_restored_incomplete{{{W},task="0_1",store="counts"}}': "0x10 1x20 0x30",
        },
        WORKER | {"store": "counts"},
        "Application delays: store counts of delays-0 was restored without all of its windows", 12, 35,
    ),
    Firing(
        "DeadLetters", "warning",
        {f'millpond_task_dead_letters_total{{{W},task="0_0"}}': "0x10 0+1x14 14x60"},
        APP, "Application delays: 14 records went to the dead-letter topic in 15 minutes", 26, 50,
    ),
    Firing(
        "LateRecordsDropped", "warning",
        {
            f'millpond_task_late_records_total{{{W},task="0_0"}}': "0+10x40 400x60",
            f'millpond_task_processed_records_total{{{W},task="0_0"}}': "0+100x100",
        },
        APP, "Application delays: 150 late records dropped in 15 minutes", 40, 70,
    ),
    Firing(
        "VolumeFilling", "warning",
        {
            f"millpond_worker_volume_free_bytes{{{W}}}": "1073741824x30 8589934592x30",
            f"millpond_worker_volume_bytes{{{W}}}": "10737418240x60",
        },
        WORKER, "Worker delays-0 of delays: its volume fills, 1GiB are free", 20, 40,
    ),
    Firing(
        "VolumeFilling", "critical",
        {
            f"millpond_worker_volume_free_bytes{{{W}}}": "107374182x30 8589934592x30",
            f"millpond_worker_volume_bytes{{{W}}}": "10737418240x60",
        },
        WORKER, "Worker delays-0 of delays: its volume is nearly full, 102.4MiB are free", 5, 40,
    ),
    Firing(
        "VolumeFilling", "warning",  # a third is free, and it goes fast
        {
            f"millpond_worker_volume_free_bytes{{{W}}}": "4000000000-10000000x60 8000000000x60",
            f"millpond_worker_volume_bytes{{{W}}}": "10000000000x200",
        },
        WORKER, "Worker delays-0 of delays: its volume fills, 3.353GiB are free", 40, 100,
    ),
    Firing(
        "RolloutStuck", "warning",
        {f"millpond_streamapp_rollout_step_timestamp_seconds{{{S}}}": "0x40 _x40"},
        STREAM_APP, "StreamApp shop/delays: the rollout has been at one worker for 35m 0s", 35, 50,
    ),
    Firing(
        "RolledBack", "warning",
        {_condition("Ready", "False", "RolledBack"): "1x10 _x30"},
        STREAM_APP | {"type": "Ready", "status": "False", "reason": "RolledBack"},
        "StreamApp shop/delays: its new revision failed and was rolled back", 5, 20,
    ),
    Firing(
        "AutoscalerAtMax", "warning",
        {_condition("ScalingLimited", "True", "AutoscalerAtMax"): "1x60 _x30"},
        STREAM_APP | {"type": "ScalingLimited", "status": "True", "reason": "AutoscalerAtMax"},
        "StreamApp shop/delays: autoscaling cannot meet the load (AutoscalerAtMax)",
        40, 70,
    ),
    Firing(
        "SnapshotOld", "warning",
        {
            f"millpond_streamapp_last_snapshot_timestamp_seconds{{{S}}}": "0x210 12600x60",
            f"millpond_streamapp_created_timestamp_seconds{{{S}}}": "0x270",
            f"millpond_streamapp_snapshot_interval_seconds{{{S}}}": "3600x270",
        },
        STREAM_APP, "StreamApp shop/delays: its last snapshot is 3h 20m 0s old", 200, 220,
    ),
    Firing(
        "SnapshotOld", "warning",  # there never was one
        {
            f"millpond_streamapp_created_timestamp_seconds{{{S}}}": "0x270",
            f"millpond_streamapp_snapshot_interval_seconds{{{S}}}": "3600x210 _x60",
        },
        STREAM_APP, "StreamApp shop/delays: its last snapshot is 3h 20m 0s old", 200, 220,
    ),
    Firing(
        "SnapshotsFailing", "warning",
        {_condition("SnapshotsFailing", "True", "SnapshotFailed"): "1x30 _x30"},
        STREAM_APP | {"type": "SnapshotsFailing", "status": "True", "reason": "SnapshotFailed"},
        "StreamApp shop/delays: snapshots fail (SnapshotFailed)", 20, 40,
    ),
    Firing(
        "OperatorDown", "critical",
        {f"millpond_operator_leading{{{O}}}": "1x5 0x10 _x5 1x30"},
        {}, "No replica of the millpond operator leads", 18, 30,
    ),
    Firing(
        "ReconcileErrors", "warning",
        {
            f'controller_runtime_reconcile_total{{{O},controller="streamapp",result="error"}}': "0+3x40 120x40",
            f'controller_runtime_reconcile_total{{{O},controller="streamapp",result="success"}}': "0+9x80",
        },
        {"namespace": "millpond-system"}, "The millpond operator: 25% of its reconciles fail", 30, 60,
    ),
    Firing(
        "CoordinatorOverloaded", "warning",
        {
            f"process_cpu_seconds_total{{{O}}}": "0+60x30 1800x40",
            f"millpond_operator_leading{{{O}}}": "1x80",
        },
        OPERATOR, "The coordinator on operator-0 is overloaded", 20, 45,
    ),
    Firing(
        "CoordinatorOverloaded", "warning",
        {f'millpond_coordinator_refusals_total{{{O},reason="connections"}}': "0+60x30 1800x40"},
        {"namespace": "millpond-system", "instance": "operator-0", "reason": "connections"},
        "The coordinator on operator-0 is overloaded", 20, 45,
    ),
    Firing(
        "CertificateExpiring", "warning",
        {
            f'millpond_operator_certificate_expiry_timestamp_seconds{{{O},certificate="server"}}':
                "864000x120 7776000x60",
        },
        OPERATOR | {"certificate": "server"},
        "The coordinator's certificate (server) expires in 9d 22h 30m 0s", 90, 130,
    ),
    _latency("1h", "critical", 20, 60, 30, 60),
    _latency("6h", "warning", 40, 120, 45, 120),
    _stale("1h", "critical", 28, 70),
    _stale("6h", "warning", 28, 120),
)  # fmt: skip
"""Every alert at least once, with each of its severities."""

QUIET = (
    Quiet(
        "WorkerDown", "a rollout restarts ten workers, one after another",
        {
            f'millpond_streamapp_workers{{{S},state="wanted"}}': "10x60",
            f'millpond_streamapp_workers{{{S},state="ready"}}': "9x20 10x40",
            _condition("Progressing", "True", "RollingOut"): "1x20 _x40",
        },
    ),
    Quiet(
        "WorkerDown", "a worker crashes and is back in two minutes",
        {
            f'millpond_streamapp_workers{{{S},state="wanted"}}': "3x60",
            f'millpond_streamapp_workers{{{S},state="ready"}}': "3x5 2x1 3x50",
        },
    ),
    Quiet(
        "WorkerDown", "a suspended application has no workers",
        {
            f'millpond_streamapp_workers{{{S},state="wanted"}}': "0x60",
            f'millpond_streamapp_workers{{{S},state="ready"}}': "0x60",
        },
    ),
    Quiet(
        "TaskNotRunning", "tasks move for a minute",
        {
            f'millpond_streamapp_tasks{{{S},state="total"}}': "8x60",
            f'millpond_streamapp_tasks{{{S},state="running"}}': "8x5 6x1 8x50",
        },
    ),
    Quiet(
        "TaskNotRunning", "the application is suspended",
        {
            f'millpond_streamapp_tasks{{{S},state="total"}}': "8x60",
            f'millpond_streamapp_tasks{{{S},state="running"}}': "0x60",
            _condition("Suspended", "True", "Suspended"): "1x60",
        },
    ),
    Quiet(
        "LagGrowing", "a backlog after a restart falls",
        {f'millpond_input_lag_records{{{W},task="0_0",topic="in"}}': "0x5 500000-10000x49"},
    ),
    Quiet(
        "PartitionStuck", "a partition is slow, or has no records",
        {
            f'millpond_input_lag_records{{{W},task="0_0",topic="in",partition="0"}}': "500x60",
            f'millpond_input_lag_records{{{W},task="0_1",topic="in",partition="1"}}': "0x60",
            f'millpond_processor_position_offset{{{W},task="0_0",topic="in"}}': "0+1x60",
            f'millpond_processor_position_offset{{{W},task="0_1",topic="in"}}': "7x60",
        },
    ),
    Quiet(
        "CommitFailing", "a rollout fences a worker twice",
        {f'millpond_worker_commit_failures_total{{{W},reason="fenced"}}': "0x5 1x1 2x50"},
    ),
    Quiet(
        "RestoreStuck", "a long restore makes progress",
        {
            f'millpond_restore_remaining_records{{{W},store="counts",partition="0"}}': "1000000-1000x60",
            f'millpond_restore_records_total{{{W},store="counts",partition="0"}}': "0+1000x60",
        },
    ),
    Quiet(
        "StandbyLagging", "a new standby catches up",
        {f'millpond_task_changelog_lag_records{{{W},task="0_1",role="standby"}}': "2000000-10000x60"},
    ),
    Quiet(
        "StoreIncomplete", "stores are restored from whole changelogs",
        {f'millpond_store_restored_incomplete{{{W},task="0_0",store="counts"}}': "0x60"},
    ),
    Quiet(
        "LateRecordsDropped", "one record in a thousand is late",
        {
            f'millpond_task_late_records_total{{{W},task="0_0"}}': "0+1x60",
            f'millpond_task_processed_records_total{{{W},task="0_0"}}': "0+1000x60",
        },
    ),
    Quiet(
        "RolloutStuck", "a rollout goes on to the next worker every ten minutes",
        {f"millpond_streamapp_rollout_step_timestamp_seconds{{{S}}}": "0x10 600x10 1200x10 1800x10 2400x10 3000x10"},
    ),
    Quiet("OperatorDown", "another replica takes over", {
        'millpond_operator_leading{instance="a"}': "1x5 _x50",
        'millpond_operator_leading{instance="b"}': "0x6 1x50",
    }),
    Quiet(
        "StreamAppDegraded", "a worker fails once, and is back in a minute",
        {_condition("Degraded", "True", "WorkerFailed"): "_x5 1x1 _x50"},
    ),
    Quiet(
        "DataStale", "no records arrive, and all are processed",
        {
            f'millpond_task_record_e2e_latency_seconds{{{W},task="0_0"}}': "0+60x120",
            f'millpond_task_record_lateness_seconds{{{W},task="0_0"}}': "0x120",
            f'millpond_processor_caught_up{{{W},task="0_0",topic="in"}}': "1x120",
        },
        until=120,
    ),
    Quiet(
        "DataStale", "an old record comes between new ones",
        {
            f'millpond_task_record_e2e_latency_seconds{{{W},task="0_0"}}': "3600x120",
            f'millpond_task_record_lateness_seconds{{{W},task="0_0"}}': "3599x120",
            f'millpond_processor_caught_up{{{W},task="0_0",topic="in"}}': "0x120",
        },
        until=120,
    ),
    Quiet(
        "EndToEndLatencyHigh", "a minute of slow commits in a restart",
        {
            f'millpond_worker_e2e_latency_seconds_bucket{{{W},le="10.0"}}': "0+600x30 18000 18600+600x60",
            f"millpond_worker_e2e_latency_seconds_count{{{W}}}": "0+600x30 18060 18660+600x60",
        },
        until=90,
    ),
)  # fmt: skip
