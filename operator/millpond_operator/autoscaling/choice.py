"""Which number of workers the measured demand takes."""

from __future__ import annotations

from dataclasses import dataclass

from .estimate import Estimate, by_subtopology, steps
from .measurement import Measurement
from .model import Policy

__all__ = ("Choice", "Load", "anticipating", "choose", "current_load")

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


def current_load(measurement: Measurement, policy: Policy) -> Load:
    """Return the load of the busiest worker with the tasks where they are."""
    arriving: dict[str, float] = {}
    with_lag: dict[str, float] = {}
    for task in measurement.tasks:
        arriving[task.worker] = arriving.get(task.worker, 0.0) + task.load
        more = task.load_with_lag(policy.catch_up, policy.target_lag)
        with_lag[task.worker] = with_lag.get(task.worker, 0.0) + more
    return Load(max(arriving.values(), default=0.0), max(with_lag.values(), default=0.0))


def choose(measurement: Measurement, policy: Policy, most: int, slack: float = _SLACK) -> Choice:
    """Return the smallest number of workers that meets the demand; if none does, the smallest that comes near the best.

    Args:
        measurement: the measured demand.
        policy: has the targets and the lower bound.
        most: the largest number to choose.
        slack: by which factor the estimated load may exceed the target.
    """
    tasks = measurement.tasks
    arriving = by_subtopology((each.subtopology, each.load) for each in tasks)
    within, target = policy.catch_up, policy.target_lag
    with_lag = by_subtopology((each.subtopology, each.load_with_lag(within, target)) for each in tasks)
    fewest = policy.min_replicas
    numbers = [fewest, *(each for each in steps(arriving, most) if each > fewest)]
    choices = []
    of_arriving, of_lag = Estimate(arriving), Estimate(with_lag)
    for number in numbers:
        load = Load(of_arriving.busiest(number), of_lag.busiest(number))
        if load.arriving <= policy.target_utilization * slack and load.with_lag <= _ALL_TIME:
            return Choice(number, load, enough=True)
        choices.append(Choice(number, load, enough=False))
    limit = policy.target_utilization
    best = _NEAR_BEST * max(_overload(choices[-1].load, limit), 1.0)
    return next(each for each in choices if _overload(each.load, limit) <= best)


def anticipating(choice: Choice, measurement: Measurement, policy: Policy, most: int, growth: float) -> Choice:
    """Return the number of workers for a demand that grows by a factor, as far as that does not leave workers idle.

    Args:
        choice: the number for the present demand.
        measurement: the measured demand.
        policy: has the targets.
        most: the largest number to choose.
        growth: by which factor the arriving records are expected to grow.
    """
    arriving = by_subtopology((each.subtopology, each.load) for each in measurement.tasks)
    estimate = Estimate(arriving)
    for number in steps(arriving, most):
        load = estimate.busiest(number)
        if number <= choice.replicas:
            continue
        if choice.load.arriving * growth <= policy.target_utilization * _SLACK:
            break
        if load < policy.target_utilization * _WORST_USE:
            break
        choice = Choice(number, Load(load, max(choice.load.with_lag - choice.load.arriving, 0.0) + load), enough=True)
    return choice


def _overload(load: Load, target: float) -> float:
    return max(load.arriving / target, load.with_lag / _ALL_TIME)
