"""Metrics of StreamApps, read from the cache at each scrape. So those of a deleted StreamApp disappear with it.

Only the fields of the metrics are decoded: with 2,000 StreamApps a scrape reads them in a few hundredths of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from millpond_operator.kubernetes import Cache, Key, kinds
from millpond_operator.resources.cron import CronSchedule, ScheduleInvalid

__all__ = ("StreamAppMetrics",)

_APP = ("namespace", "name", "application_id")
"""Labels of every metric. `application_id` is that of the metrics of workers and of the coordinator."""
_SUCCEEDED = "Succeeded"


class _Metadata(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    creation_timestamp: str = ""


class _Schedule(msgspec.Struct, rename="camel"):
    schedule: str = ""
    time_zone: str = "UTC"


class _Limits(msgspec.Struct, rename="camel"):
    max_replicas: int | None = None


class _Spec(msgspec.Struct, rename="camel"):
    application_id: str = ""
    replicas: int = 0
    suspended: bool = False
    bootstrap: _Schedule | None = None
    autoscaling: _Limits | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""


class _Rollout(msgspec.Struct, rename="camel"):
    started_at: str = ""
    worker_since: str = ""


class _Autoscaling(msgspec.Struct, rename="camel"):
    current_replicas: int | None = None
    recommended_replicas: int | None = None
    max_replicas: int | None = None


class _Status(msgspec.Struct, rename="camel"):
    workers: str = ""
    tasks: str = ""
    image: str = ""
    rollout: _Rollout | None = None
    autoscaling: _Autoscaling | None = None
    conditions: tuple[_Condition, ...] = ()


class _App(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _OfSnapshot(msgspec.Struct, rename="camel"):
    stream_app: str = ""


class _SnapshotStatus(msgspec.Struct, rename="camel"):
    phase: str = ""
    finished_at: str = ""


class _Snapshot(msgspec.Struct):
    metadata: _Metadata
    spec: _OfSnapshot = msgspec.field(default_factory=_OfSnapshot)
    status: _SnapshotStatus = msgspec.field(default_factory=_SnapshotStatus)


_decode_app = msgspec.json.Decoder(_App).decode
_decode_snapshot = msgspec.json.Decoder(_Snapshot).decode


class StreamAppMetrics(Collector):
    """The collector of the metrics of all StreamApps.

    Args:
        cache: the known objects.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families of one scrape."""
        families = _Families()
        snapshots = self._last_snapshots()
        for key, data in self._cache.encoded(kinds.STREAM_APP):
            try:
                app = _decode_app(data)
            except msgspec.ValidationError:  # the condition SpecificationInvalid reports it
                continue
            families.add(app, snapshots.get(key))
        yield from families.all.values()

    def _last_snapshots(self) -> dict[Key, float]:
        """Return the end of the last successful snapshot of each StreamApp, in epoch seconds."""
        found: dict[Key, float] = {}
        for key, data in self._cache.encoded(kinds.STATE_BOOTSTRAP):
            try:
                snapshot = _decode_snapshot(data)
            except msgspec.ValidationError:
                continue
            ended = _epoch_s(snapshot.status.finished_at)
            if snapshot.status.phase == _SUCCEEDED and ended is not None:
                app = Key(key.namespace, snapshot.spec.stream_app)
                found[app] = max(found.get(app, 0.0), ended)
        return found


class _Families:
    """The metric families while they are filled."""

    def __init__(self) -> None:
        self.all: dict[str, GaugeMetricFamily] = {
            name: GaugeMetricFamily(f"millpond_streamapp_{name}", text, labels=[*_APP, *more])
            for name, text, more in _TEXTS
        }

    def add(self, app: _App, snapshot_s: float | None) -> None:
        """Add the samples of one StreamApp."""
        spec, status = app.spec, app.status
        labels = (app.metadata.namespace, app.metadata.name, spec.application_id or app.metadata.name)
        put = self._putter(labels)
        put("info", 1, status.image)
        put("created_timestamp_seconds", _epoch_s(app.metadata.creation_timestamp))
        for each in status.conditions:
            put("condition", 1, each.type, each.status, each.reason)
        # The status knows how many workers autoscaling wants.
        ready, wanted = _counts(status.workers) or (0, spec.replicas)
        put("workers", 0 if spec.suspended else wanted, "wanted")
        put("workers", ready, "ready")
        if (tasks := _counts(status.tasks)) is not None:
            put("tasks", tasks[1], "total")
            put("tasks", tasks[0], "running")
        if status.rollout is not None:
            started = _epoch_s(status.rollout.started_at)
            put("rollout_start_timestamp_seconds", started)
            put("rollout_step_timestamp_seconds", _epoch_s(status.rollout.worker_since) or started)
        if status.autoscaling is not None:
            limits = spec.autoscaling
            put("autoscaling_current_replicas", status.autoscaling.current_replicas)
            put("autoscaling_recommended_replicas", status.autoscaling.recommended_replicas)
            put("autoscaling_max_replicas", status.autoscaling.max_replicas or (limits and limits.max_replicas))
        put("last_snapshot_timestamp_seconds", snapshot_s)
        if spec.bootstrap is not None and spec.bootstrap.schedule:
            put("snapshot_interval_seconds", _interval_s(spec.bootstrap.schedule, spec.bootstrap.time_zone))

    def _putter(self, labels: Sequence[str]) -> Callable[..., None]:
        def put(family: str, value: float | None, *more: str) -> None:
            if value is not None:
                self.all[family].add_metric([*labels, *more], value)

        return put


_TEXTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "info",
        "Always 1 for a StreamApp that exists; the label image has the image that its workers run. "
        "Never bad by itself.",
        ("image",),
    ),
    (
        "created_timestamp_seconds",
        "When the StreamApp was created, in seconds since 1970. Never bad by itself.",
        (),
    ),
    (
        "condition",
        "1 for each condition of a StreamApp, with its current status (True, False or Unknown) and reason as labels. "
        "Bad when Degraded is True, or Ready is False for minutes.",
        ("type", "status", "reason"),
    ),
    (
        "workers",
        "Workers of a StreamApp by state: wanted (by spec.replicas or autoscaling; 0 while suspended), and ready. "
        "Bad when fewer are ready than wanted for minutes.",
        ("state",),
    ),
    (
        "tasks",
        "Tasks of a StreamApp by state: total, and running. Absent until a worker has reported the topology. "
        "Bad when fewer are running than total for minutes: records are not processed.",
        ("state",),
    ),
    (
        "rollout_start_timestamp_seconds",
        "When the rollout in progress began, in seconds since 1970. Absent without a rollout. "
        "Bad when it is hours ago.",
        (),
    ),
    (
        "rollout_step_timestamp_seconds",
        "When the rollout in progress went on to its current worker, in seconds since 1970. Absent without a rollout. "
        "Bad when it is more than 30 minutes ago.",
        (),
    ),
    (
        "autoscaling_current_replicas",
        "Workers that spec.autoscaling runs now. Bad when it is below the recommended number for minutes.",
        (),
    ),
    (
        "autoscaling_recommended_replicas",
        "Workers that spec.autoscaling recommends for the current load. Bad when it stays at the limit: the load "
        "may need more.",
        (),
    ),
    (
        "autoscaling_max_replicas",
        "The limit of spec.autoscaling for the number of workers. Never bad by itself: compare it with the "
        "recommended number.",
        (),
    ),
    (
        "last_snapshot_timestamp_seconds",
        "When the last successful snapshot of the application's state ended, in seconds since 1970. "
        "Absent if there is none among the StateBootstraps that still exist. Bad when it is more than two intervals of "
        "the schedule ago.",
        (),
    ),
    (
        "snapshot_interval_seconds",
        "The longest time between two snapshots by spec.bootstrap.schedule, in seconds. Absent without a valid "
        "schedule. Never bad by itself.",
        (),
    ),
)


_COUNTS = re.compile("([0-9]{1,9})/([0-9]{1,9})")


def _counts(text: str) -> tuple[int, int] | None:
    """Return the two numbers of `3/4`; None for anything else."""
    found = _COUNTS.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def _epoch_s(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


#: Due times that are compared: a week of a daily schedule, with a weekend that it leaves out.
_COMPARED = 10


@lru_cache(maxsize=4096)
def _interval_s(schedule: str, time_zone: str) -> float | None:
    """Return the longest time between due times that follow each other, in seconds; None for an invalid schedule."""
    try:
        cron = CronSchedule(schedule, time_zone)
    except ScheduleInvalid:
        return None
    longest, before = timedelta(0), cron.after(datetime(2026, 1, 1, tzinfo=UTC))
    for _ in range(_COMPARED):
        following = None if before is None else cron.after(before)
        if before is None or following is None:
            break
        longest, before = max(longest, following - before), following
    return longest.total_seconds() or None
