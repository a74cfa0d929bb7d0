"""The changelogs of windows and sessions: brokers keep all records, and the worker deletes those that have expired.

Brokers delete records by the wall clock, but windows expire by stream time, which may be months behind: in a replay,
with data of the past, or after a long outage. So these changelogs have no time limit, and the worker deletes their
records by stream time (docs/decisions/0052-changelogs-expire-by-stream-time.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.processing.drop_log import moment
from millpond.state.builders import SessionStoreBuilder, WindowStoreBuilder

from .plan import Plan, TopicSpec

__all__ = (
    "ExpiredRecords",
    "WindowChangelog",
    "keep_records",
    "missing_windows",
    "warn_of_missing_windows",
    "window_changelogs",
    "without_limit",
)

log: logging.Logger = logging.getLogger(__name__)

#: The time between two deletions, as that of a broker's own (`log.retention.check.interval.ms`).
INTERVAL_S = 300.0
#: Requests to remove the limit of a topic, since a broker may be busy.
_ATTEMPTS = 3


@dataclass(frozen=True)
class WindowChangelog:
    """The changelog of a store whose rows expire by stream time."""

    topic: str
    """Name in Kafka."""
    retention_ms: int
    """The retention of the store."""
    keep_ms: int
    """The retention of the topic: that of the store and `windowstore.changelog.additional.retention.ms`, or its own."""
    own: bool
    """Whether the store has a `retention.ms` of its own for the topic, which brokers apply."""


class _Cluster(Protocol):
    """What this module asks of `KafkaAdmin`."""

    def configs(self, topics: Collection[str]) -> Mapping[str, Mapping[str, str]]: ...

    def set_configs(self, values: Mapping[str, Mapping[str, str]]) -> Mapping[str, str]: ...

    def offsets_at(self, times: Mapping[Partition, int]) -> Mapping[Partition, int | None]: ...

    def delete_before(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, str]: ...


def window_changelogs(plan: Plan) -> dict[str, WindowChangelog]:
    """Return the changelogs from which brokers would delete windows by their time, by store."""
    internal = {each.name: each for each in plan.internal}
    found = {}
    for part in plan.subtopologies:
        for builder in part.stores:
            spec = internal.get(plan.changelogs[part.id].get(builder.name, ""))
            if spec is None or not isinstance(builder, WindowStoreBuilder | SessionStoreBuilder):
                continue
            keep_ms = int(spec.config.get("retention.ms", "-1"))
            if "delete" in spec.config.get("cleanup.policy", "") and keep_ms >= 0:
                own = "retention.ms" in builder.log_config
                found[builder.name] = WindowChangelog(spec.name, builder.retention_ms, keep_ms, own)
    return found


def without_limit(internal: Iterable[TopicSpec], changelogs: Mapping[str, WindowChangelog]) -> list[TopicSpec]:
    """Return the internal topics as they are created: changelogs of windows have no time limit, unless of their own."""
    kept = {each.topic for each in changelogs.values() if not each.own}
    return [
        replace(spec, config={**spec.config, "retention.ms": "-1"}) if spec.name in kept else spec for spec in internal
    ]


def keep_records(
    changelogs: Mapping[str, WindowChangelog], existing: Collection[str], cluster: _Cluster
) -> dict[str, int]:
    """Remove the time limit of changelogs that exist, before any row is written.

    Returns:
        The former limit of each topic that has or had one, in milliseconds: brokers may have deleted rows by it.
    """
    topics = {each.topic: each for each in changelogs.values() if each.topic in existing}
    if not topics:
        return {}
    configs = cluster.configs(topics.keys())
    unknown = topics.keys() - configs.keys()
    limits = {name: int(config.get("retention.ms", "-1")) for name, config in configs.items()}
    limits = {name: limit for name, limit in limits.items() if limit >= 0}
    # Without a limit, that of an unknown configuration changes nothing.
    changed = sorted(name for name in (*limits, *unknown) if not topics[name].own)
    errors = dict.fromkeys(changed, "")
    for _ in range(_ATTEMPTS):
        if errors:
            errors = dict(cluster.set_configs({name: {"retention.ms": "-1"} for name in errors}))
    for name in changed:
        if name in unknown:
            if name in errors:
                log.warning(
                    "changelog %s: the worker may neither read its configuration nor change it (%s), so brokers may "
                    "delete its records by the wall clock. Grant 'DescribeConfigs' and 'AlterConfigs' for the topic, "
                    "or set its 'retention.ms' to -1: the worker deletes what has expired.", name, errors[name],
                )  # fmt: skip
        elif name in errors:
            log.warning(
                "changelog %s: brokers delete its records by the wall clock ('retention.ms' is %d), and the worker "
                "cannot remove this limit (%s). With records of the past, as in a replay, a restored store then lacks "
                "windows. Grant 'AlterConfigs' for the topic, or set its 'retention.ms' to -1: the worker deletes what "
                "has expired.",
                name, limits[name], errors[name],
            )  # fmt: skip
        else:
            log.info(
                "changelog %s: 'retention.ms' was %d and is -1 now: the worker deletes records when their windows have "
                "expired by stream time", name, limits[name],
            )  # fmt: skip
    return limits


def missing_windows(  # noqa: PLR0913 - the facts of one restore
    *, stream_time: int, retention_ms: int, limit_ms: int | None, first: int, whole: bool, now_ms: int
) -> tuple[int, int] | None:
    """Return the times between which windows may be missing from a restored store, in epoch ms; None if none is.

    Args:
        stream_time: the committed stream time of the task; -1 if unknown.
        retention_ms: the retention of the store.
        limit_ms: the time limit by which brokers have deleted records of the changelog; None without one.
        first: the first offset of the changelog.
        whole: whether the store is restored from the changelog alone.
        now_ms: wall-clock time.
    """
    if limit_ms is None or not first or not whole or stream_time < 0:
        return None
    since, until = max(0, stream_time - retention_ms), now_ms - limit_ms
    return (since, min(until, stream_time)) if since < until else None


def warn_of_missing_windows(store: Any, log_begins: tuple[str, int], limit_ms: int, span: tuple[int, int]) -> None:
    """Log that a restored store may lack windows.

    Args:
        store: the store.
        log_begins: its changelog, and the first offset of it.
        limit_ms: the time limit by which brokers deleted records.
        span: the times between which windows may be missing, in epoch ms.
    """
    log.warning(
        "store %s partition %d: the restored store may lack windows from %s to %s. Changelog %s begins at offset %d: "
        "brokers deleted the records before it, since its 'retention.ms' was %d and stream time is further behind the "
        "wall clock. Results of these windows will be missing or too small. Stop the workers and run `millpond reset` "
        "to make them again from the inputs.",
        store.name, store.partition, moment(span[0]), moment(span[1]), *log_begins, limit_ms,
    )  # fmt: skip


class ExpiredRecords:
    """The deletion of changelog records whose windows have expired by the committed stream time.

    A pass deletes what had expired at the pass before, so that operators have sent what they still read of it.

    Args:
        plan: the tasks and topics of the application.
        changelogs: the changelogs of windows, by store.
        cluster: the admin client.
        run: runs a function in a thread.
    """

    def __init__(
        self,
        plan: Plan,
        changelogs: Mapping[str, WindowChangelog],
        cluster: _Cluster,
        run: Callable[[Callable[[], None]], Future[None]],
    ) -> None:
        self._changelogs = {store: each for store, each in changelogs.items() if not each.own}
        self._inputs = {
            (store, task.partition): plan.inputs_of(task)
            for task in plan.tasks
            for store in plan.changelogs[task.subtopology]
            if store in self._changelogs
        }
        self._cluster = cluster
        self._run = run
        self._interval_s = INTERVAL_S
        self._next = time.monotonic() + self._interval_s
        self._commits: dict[tuple[str, int], tuple[bytes, Mapping[Partition, tuple[int, OffsetMetadata]]]] = {}
        self._times: dict[Partition, int] = {}
        self._pass: Future[None] | None = None
        self._warned: set[str] = set()

    def completed(
        self, rows: Sequence[tuple[Any, Any, bytes]], offsets: Mapping[Partition, tuple[int, OffsetMetadata]]
    ) -> None:
        """Note the times of a completed commit, and start a pass if it is due."""
        if not self._changelogs:
            return
        for store, _, metadata in rows:
            if store.name in self._changelogs:
                self._commits[store.name, store.partition] = metadata, offsets
        now = time.monotonic()
        if now < self._next or not (self._pass is None or self._pass.done()):
            return
        self._next = now + self._interval_s
        due, self._times = self._times, self._expired()
        if due:
            self._pass = self._run(lambda: self._delete(due))

    def _expired(self) -> dict[Partition, int]:
        """Return the time before which each changelog's records have expired, and forget the commits."""
        found = {}
        for key, (metadata, offsets) in self._commits.items():
            stream_time = max(
                (offsets[each][1].partition_time for each in self._inputs[key] if each in offsets), default=-1
            )
            observed = _observed(metadata)
            changelog = self._changelogs[key[0]]
            if (before := min(stream_time, observed) - changelog.keep_ms) > 0:
                found[Partition(changelog.topic, key[1])] = before
        self._commits.clear()
        return found

    def _delete(self, times: Mapping[Partition, int]) -> None:
        try:
            offsets = self._cluster.offsets_at(times)
            errors = self._cluster.delete_before({each: offset for each, offset in offsets.items() if offset})
        except Exception as error:  # noqa: BLE001 - the next pass tries again
            log.info("changelogs: cannot delete expired records: %s", error)
            return
        for partition, reason in errors.items():
            if partition.topic not in self._warned:
                self._warned.add(partition.topic)
                log.warning(
                    "changelog %s: cannot delete records whose windows have expired (%s), so the topic grows. Grant "
                    "'Delete' for the topic.", partition.topic, reason,
                )  # fmt: skip


def _observed(metadata: bytes) -> int:
    """Return the stream time in the metadata of a store of windows; -1 without one."""
    found = msgspec.msgpack.decode(metadata) if metadata else {}
    return int(found.get("observed_stream_time", -1))
