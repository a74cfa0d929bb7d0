"""Rates from two reports of a worker's load. Pure: both reports carry the worker's own clock."""

from __future__ import annotations

import msgspec

from .loads import InputLoad, TaskLoad, WorkerLoad

__all__ = ("InputRates", "TaskRates", "WorkerRates", "rates")


class InputRates(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One input partition of a task."""

    records_per_second: float | None = None
    """Records processed per second; None if the earlier report does not have the input."""
    lag: int | None = None
    """Records to process, from the later report; None while the end of the partition is unknown."""
    lag_growth_per_second: float | None = None
    """Records by which the lag grows per second; negative while it shrinks. None if a report has no lag."""


class TaskRates(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One active task: the sums of its inputs."""

    records_per_second: float | None = None
    """Records processed per second; None if the earlier report does not have the task."""
    lag: int | None = None
    """Records to process, from the later report; None while the end of an input is unknown."""
    lag_growth_per_second: float | None = None
    """Records by which the lag grows per second; negative while it shrinks. None if a report has no lag."""
    inputs: dict[str, InputRates] = {}
    """By topic, under its name in Kafka."""


class WorkerRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rates of one worker between two reports."""

    seconds: float = 0.0
    """Time between the two reports."""
    records_per_second: float = 0.0
    """Records processed per second by all tasks, tasks included that have moved away."""
    utilisation: float = 0.0
    """Share of the time that the worker's loop processed and committed, 0 to 1."""
    tasks: dict[str, TaskRates] = {}
    """By task id: the active tasks of the later report."""


def rates(before: WorkerLoad, after: WorkerLoad) -> WorkerRates:
    """Return the rates between two reports of one process.

    Args:
        before: the earlier report.
        after: the later one.

    Raises:
        ValueError: `after` was not measured later than `before`.
    """
    ms = after.measured_ms - before.measured_ms
    if ms <= 0:
        raise ValueError(f"the later report was measured {-ms} ms before the earlier one: pass them in order.")
    seconds = ms / 1000
    return WorkerRates(
        seconds=seconds,
        records_per_second=_per_second(before.processed, after.processed, seconds),
        utilisation=min(max((after.busy_ms - before.busy_ms) / ms, 0.0), 1.0),
        tasks={name: _task(before.tasks.get(name), load, seconds) for name, load in after.tasks.items()},
    )


def _task(before: TaskLoad | None, after: TaskLoad, seconds: float) -> TaskRates:
    earlier = {} if before is None else before.inputs
    lag = _lag(after)
    return TaskRates(
        records_per_second=None if before is None else _per_second(before.processed, after.processed, seconds),
        lag=lag,
        lag_growth_per_second=_growth(None if before is None else _lag(before), lag, seconds),
        inputs={topic: _input(earlier.get(topic), load, seconds) for topic, load in after.inputs.items()},
    )


def _input(before: InputLoad | None, after: InputLoad, seconds: float) -> InputRates:
    return InputRates(
        records_per_second=None if before is None else _per_second(before.consumed, after.consumed, seconds),
        lag=after.lag,
        lag_growth_per_second=_growth(None if before is None else before.lag, after.lag, seconds),
    )


def _lag(task: TaskLoad) -> int | None:
    """Return the lag over all inputs of a task; None if that of one is unknown, or without inputs."""
    total = None
    for each in task.inputs.values():
        if each.lag is None:
            return None
        total = (total or 0) + each.lag
    return total


def _per_second(before: int, after: int, seconds: float) -> float:
    return max(0, after - before) / seconds


def _growth(before: int | None, after: int | None, seconds: float) -> float | None:
    return None if before is None or after is None else (after - before) / seconds
