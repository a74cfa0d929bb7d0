"""Metrics of StreamApps, from the objects that the operator knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millpond_operator.controllers.coordinator_host.tls.certificates import issued
from millpond_operator.controllers.process.metrics import OperatorMetrics
from millpond_operator.controllers.process.streamapp_metrics import StreamAppMetrics
from millpond_operator.kubernetes import Cache, kinds

APP = {"namespace": "shop", "name": "orders", "application_id": "orders-v2"}


class Scraped:
    """A cache and its metrics."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.metrics = OperatorMetrics()
        self.metrics.add(StreamAppMetrics(self.cache))
        self._version = 0

    def put(self, kind: Any, name: str, spec: Any, status: Any) -> dict[str, Any]:
        self._version += 1
        metadata = {
            "namespace": "shop", "name": name, "resourceVersion": str(self._version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        }  # fmt: skip
        made = {"metadata": metadata, "spec": spec, "status": status}
        self.cache.put(kind, made)
        return made

    def value(self, metric: str, /, **labels: str) -> float | None:
        found = [
            sample.value
            for family in text_string_to_metric_families(self.metrics.exposed().decode())
            for sample in family.samples
            if sample.name == metric and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, found
        return found[0] if found else None


def test_streamapp_is_described() -> None:
    """Its conditions with reasons, workers, tasks, and the rollout in progress."""
    scraped = Scraped()
    conditions = [
        {"type": "Ready", "status": "False", "reason": "WorkersNotReady"},
        {"type": "Degraded", "status": "True", "reason": "OutOfMemory"},
    ]
    rollout = {"revision": "r", "startedAt": "1970-01-01T00:10:00Z", "workerSince": "1970-01-01T00:20:00Z"}
    status = {"workers": "2/3", "tasks": "7/8", "image": "orders:3", "conditions": conditions, "rollout": rollout}
    scraped.put(kinds.STREAM_APP, "orders", {"replicas": 3, "applicationId": "orders-v2"}, status)
    name = "millpond_streamapp_"
    assert scraped.value(f"{name}condition", **APP, type="Degraded", status="True", reason="OutOfMemory") == 1
    assert scraped.value(f"{name}condition", **APP, type="Ready", status="True") is None
    assert scraped.value(f"{name}workers", **APP, state="wanted") == 3
    assert scraped.value(f"{name}workers", **APP, state="ready") == 2
    assert scraped.value(f"{name}tasks", **APP, state="total") == 8
    assert scraped.value(f"{name}tasks", **APP, state="running") == 7
    assert scraped.value(f"{name}rollout_start_timestamp_seconds", **APP) == 600
    assert scraped.value(f"{name}rollout_step_timestamp_seconds", **APP) == 1200
    assert scraped.value(f"{name}info", **APP, image="orders:3") == 1


def test_rollout_without_a_worker_yet_counts_from_its_start() -> None:
    """So that one that never gets to a worker is noticed, too."""
    scraped = Scraped()
    status = {"rollout": {"startedAt": "1970-01-01T00:10:00Z"}}
    scraped.put(kinds.STREAM_APP, "orders", {}, status)
    assert scraped.value("millpond_streamapp_rollout_step_timestamp_seconds") == 600


def test_metrics_of_a_deleted_streamapp_disappear() -> None:
    """Alerts about it end."""
    scraped = Scraped()
    app = scraped.put(kinds.STREAM_APP, "orders", {"replicas": 3}, {})
    assert scraped.value("millpond_streamapp_workers", name="orders", state="wanted") == 3
    scraped.cache.remove(kinds.STREAM_APP, app)
    assert b'name="orders"' not in scraped.metrics.exposed()


def test_suspended_streamapp_wants_no_workers() -> None:
    """Nobody is woken for workers that are not to run."""
    scraped = Scraped()
    scraped.put(kinds.STREAM_APP, "orders", {"replicas": 3, "suspended": True}, {})
    assert scraped.value("millpond_streamapp_workers", state="wanted") == 0
    assert scraped.value("millpond_streamapp_tasks", state="total") is None


def test_last_successful_snapshot_counts() -> None:
    """Not a failed one, nor one of another application."""
    scraped = Scraped()
    bootstrap = {"location": "s3://a/b", "schedule": "0 3 * * 1-5", "timeZone": "Europe/Berlin"}
    scraped.put(kinds.STREAM_APP, "orders", {"bootstrap": bootstrap}, {})
    for name, app, phase, minute in (
        ("first", "orders", "Succeeded", 1),
        ("second", "orders", "Succeeded", 2),
        ("third", "orders", "Failed", 3),
        ("other", "payments", "Succeeded", 4),
    ):
        status = {"phase": phase, "finishedAt": f"1970-01-01T00:0{minute}:00Z"}
        scraped.put(kinds.STATE_BOOTSTRAP, name, {"streamApp": app}, status)
    assert scraped.value("millpond_streamapp_last_snapshot_timestamp_seconds", name="orders") == 120
    weekend = 3 * 86400
    assert scraped.value("millpond_streamapp_snapshot_interval_seconds", name="orders") == weekend


def test_invalid_schedule_has_no_interval() -> None:
    """The condition SnapshotsFailing reports it."""
    scraped = Scraped()
    scraped.put(kinds.STREAM_APP, "orders", {"bootstrap": {"schedule": "whenever"}}, {})
    assert scraped.value("millpond_streamapp_snapshot_interval_seconds") is None
    assert scraped.value("millpond_streamapp_info") == 1


def test_autoscaling_is_read_from_the_status() -> None:
    """The limit is that of the specification."""
    scraped = Scraped()
    status = {"autoscaling": {"mode": "Auto", "currentReplicas": 4, "recommendedReplicas": 6}, "workers": "3/4"}
    scraped.put(kinds.STREAM_APP, "orders", {"replicas": 2, "autoscaling": {"maxReplicas": 8}}, status)
    assert scraped.value("millpond_streamapp_workers", state="wanted") == 4  # not spec.replicas
    values = [
        scraped.value(f"millpond_streamapp_autoscaling_{each}_replicas") for each in ("current", "recommended", "max")
    ]
    assert values == [4, 6, 8]


def test_unreadable_streamapp_hides_no_other_one() -> None:
    """The condition SpecificationInvalid reports it."""
    scraped = Scraped()
    scraped.put(kinds.STREAM_APP, "bad", {"replicas": "many"}, {})
    scraped.put(kinds.STREAM_APP, "orders", {"replicas": 3}, {})
    assert scraped.value("millpond_streamapp_workers", state="wanted") == 3


@pytest.mark.parametrize("workers", ["²/3", f"{'9' * 400}/3", f"{'9' * 5_000}/3", "-1/3"])
def test_unreadable_number_of_workers_hides_no_other_streamapp(workers: str) -> None:
    """Otherwise one of them would end every scrape."""
    scraped = Scraped()
    scraped.put(kinds.STREAM_APP, "strange", {"replicas": 2}, {"workers": workers})
    scraped.put(kinds.STREAM_APP, "orders", {"replicas": 3}, {"workers": "2/3"})
    assert scraped.value("millpond_streamapp_workers", name="orders", state="ready") == 2


def test_certificates_tell_when_they_expire() -> None:
    """The server's after 90 days, its authority's after ten years."""
    scraped = Scraped()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    scraped.metrics.certificates(issued(["coordinator"], now).expiry)
    name = "millpond_operator_certificate_expiry_timestamp_seconds"
    assert scraped.value(name, certificate="server") == now.timestamp() + 90 * 86400
    assert scraped.value(name, certificate="authority") == now.timestamp() + 3650 * 86400
