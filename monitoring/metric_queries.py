"""A query in PromQL for each metric, for `docs/metrics.md`: by the metric's type and labels, with exceptions by name."""

from __future__ import annotations

__all__ = ("query",)

_LABELS = (
    ("millpond_task_dropped", "application_id, reason"),
    ("millpond_task_held", "application_id, role"),
    ("millpond_task_", "application_id, task"),
    ("millpond_input_lag", "application_id, topic, partition"),
    ("millpond_input_", "application_id, subtopology, topic"),
    ("millpond_processor_", "application_id, topic"),
    ("millpond_node_", "application_id, node"),
    ("millpond_store_", "application_id, store"),
    ("millpond_restore_", "application_id, store"),
    ("millpond_query_seconds", "application_id, kind"),
    ("millpond_worker_commit_failures", "application_id, reason"),
    ("millpond_worker_state_bytes", "application_id, worker"),
    ("millpond_worker_state", "application_id, state"),
    ("millpond_worker_resident", "application_id, worker"),
    ("millpond_worker_volume", "application_id, worker"),
    ("millpond_worker_tasks", "application_id, worker"),
    ("millpond_worker_cpu", "application_id, worker"),
    ("millpond_worker_busy", "application_id, worker"),
    ("millpond_streamapp_tasks", "namespace, name, state"),
    ("millpond_streamapp_workers", "namespace, name, state"),
    ("millpond_streamapp_", "namespace, name"),
    ("millpond_coordinator_connections", "instance"),
    ("millpond_coordinator_refusals", "reason"),
    ("millpond_coordinator_heartbeats", "application_namespace, application_name, outcome"),
    ("millpond_coordinator_members", "application_namespace, application_name, state"),
    ("millpond_coordinator_tasks", "application_namespace, application_name, state"),
    ("millpond_coordinator_", "application_namespace, application_name"),
    ("millpond_operator_certificate", "certificate"),
    ("millpond_operator_http", "reason"),
    ("millpond_operator_", "instance"),
    ("millpond_", "application_id"),
    ("controller_runtime_reconcile_total", "controller, result"),
    ("controller_runtime_", "controller"),
    ("leader_election_", "name"),
    ("rest_client_requests_total", "method, code"),
    ("rest_client_", "verb"),
    ("workqueue_", "name"),
    ("process_", "instance"),
)
"""The labels by which metrics are added up, by the beginning of their names; the first match counts."""

_RARE = (
    "millpond_task_dropped_records_total", "millpond_task_late_records_total", "millpond_task_failed_records_total",
    "millpond_task_dead_letters_total", "millpond_node_dropped_records_total", "millpond_store_expired_records_total",
    "millpond_worker_commit_failures_total", "millpond_worker_clients_replaced_total",
    "millpond_worker_recoveries_total", "millpond_bootstrap_refused_stores_total", "millpond_coordinator_deaths_total",
    "millpond_coordinator_refusals_total", "millpond_coordinator_save_failures_total", "workqueue_retries_total",
)  # fmt: skip
"""Counters of what should not happen: the query shows where it did."""

_EXCEPTIONS = {
    "millpond_processor_caught_up": "min by (application_id, topic) (millpond_processor_caught_up)",
    "millpond_processor_position_offset": (
        "sum by (application_id, topic) (rate(millpond_processor_position_offset[5m]))"
    ),
    "millpond_worker_volume_free_bytes": "millpond_worker_volume_free_bytes / millpond_worker_volume_bytes",
    "millpond_streamapp_condition": 'millpond_streamapp_condition{type="Degraded", status="True"} == 1',
    "millpond_streamapp_info": "count by (image) (millpond_streamapp_info)",
    "millpond_operator_certificate_expiry_timestamp_seconds": (
        "min by (certificate) (millpond_operator_certificate_expiry_timestamp_seconds) - time()"
    ),
}


def query(name: str, kind: str) -> str:
    """Return a query that is useful as it is, for one metric.

    Args:
        name: the metric, with `_total` if it is a counter.
        kind: `counter`, `gauge` or `histogram`.
    """
    if name in _EXCEPTIONS:
        return _EXCEPTIONS[name]
    labels = next(labels for start, labels in _LABELS if name.startswith(start))
    if kind == "histogram":
        return f"histogram_quantile(0.99, sum by ({labels}, le) (rate({name}_bucket[5m])))"
    if name in _RARE:
        return f"sum by ({labels}) (increase({name}[15m])) > 0"
    if kind == "counter":
        return f"sum by ({labels}) (rate({name}[5m]))"
    if name.endswith(("timestamp_seconds", "start_time_seconds")):
        return f"time() - max by ({labels}) ({name})"
    return f"{'max' if name.endswith('_seconds') else 'sum'} by ({labels}) ({name})"
