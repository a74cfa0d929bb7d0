"""Rates from two load reports of one worker's process."""

from __future__ import annotations

import msgspec

from .loads import WorkerLoad

__all__ = ("InputRates", "TaskRates", "WorkerRates", "rates")


class InputRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """One input partition of an active task."""

    records_per_second: float = 0.0
    lag: int | None = None
    lag_growth_per_second: float | None = None


class TaskRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """One active task that both reports have."""

    records_per_second: float = 0.0
    lag: int | None = None
    lag_growth_per_second: float | None = None
    inputs: dict[str, InputRates] = {}


class WorkerRates(msgspec.Struct, frozen=True, omit_defaults=True):
    """One worker."""

    records_per_second: float = 0.0
    utilisation: float = 0.0
    tasks: dict[str, TaskRates] = {}


def rates(before: WorkerLoad, after: WorkerLoad) -> WorkerRates:
    """Return the rates between two reports of one process."""
    seconds = (after.measured_ms - before.measured_ms) / 1000
    if seconds <= 0:
        return WorkerRates()
    tasks: dict[str, TaskRates] = {}
    for name, task in after.tasks.items():
        old = before.tasks.get(name)
        if old is None:
            continue
        inputs: dict[str, InputRates] = {}
        for topic, each in task.inputs.items():
            was = old.inputs.get(topic)
            if was is None:
                continue
            growth = None if each.lag is None or was.lag is None else (each.lag - was.lag) / seconds
            inputs[topic] = InputRates((each.consumed - was.consumed) / seconds, each.lag, growth)
        known = [each.lag for each in inputs.values() if each.lag is not None]
        growths = [each.lag_growth_per_second for each in inputs.values() if each.lag_growth_per_second is not None]
        tasks[name] = TaskRates(
            (task.processed - old.processed) / seconds,
            sum(known) if len(known) == len(inputs) and inputs else None,
            sum(growths) if len(growths) == len(inputs) and inputs else None,
            inputs,
        )
    return WorkerRates(
        (after.processed - before.processed) / seconds,
        min(max((after.busy_ms - before.busy_ms) / 1000 / seconds, 0.0), 1.0),
        tasks,
    )
