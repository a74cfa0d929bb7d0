"""All metrics of millpond with their meanings, for `docs/metrics.md`: read from the code that exports them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from prometheus_client import Metric

from millpond.queries.metrics import QueryMetrics
from millpond.runtime.config.model import Config
from millpond.runtime.http import metric_families
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.http.user_metrics import DETAILED
from millpond_operator.controllers.process.metrics import UPGRADES_WAITING, OperatorMetrics
from millpond_operator.controllers.process.streamapp_metrics import StreamAppMetrics
from millpond_operator.controllers.process.work_queue import WorkQueue
from millpond_operator.coordinator.server.metrics import CoordinatorMetrics
from millpond_operator.kubernetes import Cache
from monitoring.metric_queries import query

__all__ = ("entries", "operator_metrics", "worker_metrics")

_ROWS = {
    name: rows
    for name, rows in vars(metric_families).items()
    if name.isupper() and isinstance(rows, tuple) and rows and isinstance(rows[0], metric_families.MetricRow)
}
_HEADINGS = (
    ("millpond_bootstrap_", "Snapshots that a worker restores"),
    ("millpond_input_", "Lag and latency of inputs"),
    ("millpond_node_", "Nodes"),
    ("millpond_processor_", "Inputs"),
    ("millpond_query_", "Queries"),
    ("millpond_restore_", "Restoring"),
    ("millpond_rocksdb_", "RocksDB"),
    ("millpond_store_", "Stores"),
    ("millpond_task_", "Tasks"),
    ("millpond_worker_", "Worker"),
    ("millpond_coordinator_", "Coordinator"),
    ("millpond_operator_", "Operator"),
    ("millpond_streamapp_", "StreamApps"),
    ("controller_runtime_", "Reconciling"),
    ("workqueue_", "Work queue"),
)
_Described = dict[str, tuple[str, str]]
"""Type and help text of each metric, by name."""


def worker_metrics() -> _Described:
    """Return the metrics of a worker."""
    metrics = WorkerMetrics(Config(application_id="a", bootstrap_servers="b"))
    QueryMetrics(metrics.registry, "a", "w0")
    found = _described(metrics.registry.collect())
    for rows in _ROWS.values():
        for row in rows:
            name = f"{row.name}_total" if row.counter else row.name
            found[name] = ("counter" if row.counter else "gauge", row.text)
    found |= {name: ("histogram", text) for name, text in DETAILED.items()}
    return found


def operator_metrics() -> _Described:
    """Return the metrics of the operator and its coordinator."""
    metrics = OperatorMetrics()
    queue = metrics.of_queue("streamapp")
    queue.watch(WorkQueue("streamapp", metrics=queue))
    metrics.certificates(lambda: {"server": datetime.now(UTC)})
    metrics.add(StreamAppMetrics(Cache()))
    metrics.add(CoordinatorMetrics(list))
    found = _described(metrics.registry.collect())
    found["millpond_operator_upgrades_waiting"] = "gauge", UPGRADES_WAITING
    return found


def entries(metrics: _Described) -> str:
    """Return each metric with its meaning and a query as Markdown, under headings by the part that it is about."""
    parts: dict[str, list[str]] = {}
    for name, (kind, text) in sorted(metrics.items()):
        heading = next((heading for start, heading in _HEADINGS if name.startswith(start)), "Process and clients")
        parts.setdefault(heading, []).append(f"`{name}`, {kind}: {text}\n\n```promql\n{query(name, kind)}\n```")
    return "\n\n".join(f"### {heading}\n\n" + "\n\n".join(found) for heading, found in parts.items())


def _described(families: Iterable[Metric]) -> _Described:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: (
            family.type, " ".join(family.documentation.replace("<", "\\<").split()),
        )
        for family in families
        if not family.name.startswith("python_")
    }  # fmt: skip
