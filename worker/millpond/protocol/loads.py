"""The load that workers report with heartbeats: counters, from which two reports of one process give rates.

A worker measures at most once a second, and sends the last measurement with each heartbeat. Counters start at zero with
the process; `measured_ms` is the worker's monotonic clock, so rates never compare clocks of two machines.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

__all__ = ("InputLoad", "Int64", "TaskLoad", "WorkerLoad")

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A number as Kafka counts. A larger one is no worker's, and floats cannot represent all of them."""


class InputLoad(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One input partition of an active task."""

    consumed: Int64 = 0
    """Records processed since the worker's process started."""
    lag: Int64 | None = None
    """Records from the task's position to the end of the partition; None while the end is unknown."""


class TaskLoad(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One active task."""

    processed: Int64 = 0
    """Records processed since the worker's process started."""
    inputs: dict[str, InputLoad] = {}
    """By topic, under its name in Kafka. A worker with very many inputs sums them up per task, under the name ""."""
    latency_ms: Int64 | None = None
    """Wall-clock time minus the timestamp of the last record processed, in ms; None before the first record."""


class WorkerLoad(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The load of one worker."""

    measured_ms: Int64 = 0
    """When this was measured, on the worker's monotonic clock, in ms."""
    busy_ms: Int64 = 0
    """Time that the loop spent on reading, processing and committing records since the process started, in ms. Waits
    for commits count; waits for records, and the reading of changelogs into copies, do not."""
    processed: Int64 = 0
    """Records processed by all tasks since the process started, tasks included that have moved away."""
    tasks: dict[str, TaskLoad] = {}
    """By task id: the active tasks that run."""
    state_bytes: Int64 = 0
    """Size of all files in the state directory, in bytes: data files, RocksDB's log, files of processors."""
    volume_bytes: Int64 = 0
    """Size of the file system with the state directory, in bytes; 0 if unknown."""
    volume_free_bytes: Int64 = 0
    """Free space on it, in bytes."""
