"""Which number of workers the measured demand takes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .estimate import Estimate, steps
from .measurement import Measurement
from .model import Policy

__all__ = ("Choice", "Demand", "Load", "anticipating", "choose")

_TOLERANCE = 0.1
"""By which share of the target utilisation a worker may exceed it before workers are added; as of an HPA."""
_SLACK = 1.05
"""By which factor an estimate of more workers may exceed the target: it assumes that the heaviest tasks meet."""
_NEAR_BEST = 1.1
"""Where no number of workers is enough: the number chosen leaves at most this factor over what the most would."""
_WORST_USE = 0.5
"""Anticipated growth leaves the busiest worker at least this share of the target utilisation to do now."""
_ALL_TIME = 1.0
"""A worker that works off lag may be busy all the time."""


@dataclass(frozen=True)
class Load:
    """What the busiest worker has to do, as shares of its time."""

    arriving: float
    """For the records that arrive."""
    with_lag: float
    """For them and for the lag above the target, within the time to catch up."""

    def exceeds(self, policy: Policy) -> bool:
        """Return whether more workers are needed."""
        return self.arriving > policy.target_utilization * (1 + _TOLERANCE) or self.with_lag > _ALL_TIME


@dataclass(frozen=True)
class Choice:
    """A number of workers."""

    replicas: int
    load: Load
    """The estimated load of its busiest worker."""
    enough: bool
    """Whether that is within the target."""


class Demand:
    """The loads of all tasks of a measurement. Computed once for all questions of one decision.

    Args:
        measurement: the measured demand.
        policy: has the targets.
    """

    def __init__(self, measurement: Measurement, policy: Policy) -> None:
        self.tasks = len(measurement.tasks)
        within, target = policy.catch_up.total_seconds(), policy.target_lag.total_seconds()
        arriving, with_lag = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
        per_worker, per_worker_with_lag = defaultdict[str, float](float), defaultdict[str, float](float)
        for task in measurement.tasks:
            load, more = task.load, task.load_with_lag(within, target)
            arriving[task.subtopology].append(load)
            with_lag[task.subtopology].append(more)
            per_worker[task.worker] += load
            per_worker_with_lag[task.worker] += more
        self.now = Load(max(per_worker.values(), default=0.0), max(per_worker_with_lag.values(), default=0.0))
        """The load of the busiest worker with the tasks where they are."""
        self._arriving = arriving
        self._of_arriving, self._of_lag = Estimate(arriving), Estimate(with_lag)

    def steps(self, most: int) -> tuple[int, ...]:
        """Return the numbers of workers up to `most` that take load off the busiest worker."""
        return steps(self._arriving, most)

    def load(self, workers: int) -> Load:
        """Return the most load that one of so many workers can get."""
        return Load(self._of_arriving.busiest(workers), self._of_lag.busiest(workers))


def choose(demand: Demand, policy: Policy, most: int, slack: float = _SLACK) -> Choice:
    """Return the smallest number of workers that meets the demand; if none does, the smallest that comes near the best.

    Args:
        demand: the measured demand.
        policy: has the targets and the lower bound.
        most: the largest number to choose.
        slack: by which factor the estimated load may exceed the target.
    """
    fewest = policy.min_replicas
    choices = []
    for number in (fewest, *(each for each in demand.steps(most) if each > fewest)):
        load = demand.load(number)
        if load.arriving <= policy.target_utilization * slack and load.with_lag <= _ALL_TIME:
            return Choice(number, load, enough=True)
        choices.append(Choice(number, load, enough=False))
    limit = policy.target_utilization
    best = _NEAR_BEST * max(_overload(choices[-1].load, limit), 1.0)
    return next(each for each in choices if _overload(each.load, limit) <= best)


def anticipating(choice: Choice, demand: Demand, policy: Policy, most: int, growth: float) -> Choice:
    """Return the number of workers for a demand that grows by a factor, as far as that does not leave workers idle.

    Args:
        choice: the number for the present demand.
        demand: the measured demand.
        policy: has the targets.
        most: the largest number to choose.
        growth: by which factor the arriving records are expected to grow.
    """
    for number in demand.steps(most):
        if number <= choice.replicas:
            continue
        if choice.load.arriving * growth <= policy.target_utilization * _SLACK:
            break
        load = demand.load(number).arriving
        if load < policy.target_utilization * _WORST_USE:
            break
        choice = Choice(number, Load(load, max(choice.load.with_lag - choice.load.arriving, 0.0) + load), enough=True)
    return choice


def _overload(load: Load, target: float) -> float:
    return max(load.arriving / target, load.with_lag / _ALL_TIME)
