"""The reasons of the autoscaler in plain sentences."""

from __future__ import annotations

from datetime import timedelta

from millpond.durations import Duration

from .choice import Choice, Load
from .measurement import Unmeasured
from .model import Policy

__all__ = ("Words",)

_MOST = 100
"""A larger share of a worker's time, as of one that reports nonsense, is not spelled out."""


class Words:
    """Says why.

    Args:
        policy: what the StreamApp asks for.
        current: the wanted number of workers so far.
        most: the largest number that may be chosen.
        tasks: the number of tasks.
    """

    def __init__(self, policy: Policy, current: int, most: int, tasks: int) -> None:
        self._policy = policy
        self._current = current
        self._most = most
        self._tasks = tasks

    def disabled(self) -> str:
        """`spec.replicas` is 0."""
        return "spec.replicas is 0, so no workers run and nothing is decided."

    def settling(self, why: str) -> str:
        """Something moves."""
        return f"Nothing is decided while {why}, because rates measured meanwhile mean nothing."

    def unmeasured(self, measured: Unmeasured) -> str:
        """Rates are not known."""
        return f"{measured.message[:-1]}; nothing is decided."

    def conflict(self, manager: str) -> str:
        """Another autoscaler is at work."""
        return (
            f"'{manager}' sets spec.replicas, so this autoscaler only recommends: delete the HorizontalPodAutoscaler "
            "or ScaledObject, then run kubectl scale with another number of replicas; or remove spec.autoscaling."
        )

    def steady(self, load: Load) -> str:
        """The number of workers fits."""
        return f"The busiest worker needs {_percent(load.arriving)} of its time for the records that arrive."

    def out(self, load: Load, choice: Choice) -> str:
        """More workers are needed."""
        result = f"with {_workers(choice.replicas)} it is at most {_percent(_shown(choice.load))}"
        if load.arriving > self._policy.target_utilization or load.with_lag <= load.arriving:
            return f"{self.steady(load)[:-1]}; {result}."
        return (
            f"The busiest worker needs {_percent(load.with_lag)} of its time to work off its lag within "
            f"{_duration(self._policy.catch_up)}; {result}."
        )

    def into(self, wanted: int) -> str:
        """Fewer workers suffice."""
        return f"For {_duration(self._policy.stabilization)}, {_workers(wanted)} would have been enough."

    def at_max(self, load: Load) -> str:
        """As many workers as allowed are too few."""
        need = _percent(_shown(load))
        if self._most >= self._tasks <= self._current:
            return (
                f"The busiest worker needs {need} of its time, and each of the {self._most} tasks has its own worker: "
                "more partitions or faster processing would help."
            )
        workers = _workers(self._current)
        return f"The busiest worker needs {need} of its time with {workers}: raise spec.autoscaling.maxReplicas."

    def hot_task(self, load: Load) -> str:
        """More workers do not help."""
        return (
            f"The busiest worker needs {_percent(_shown(load))} of its time, and no allowed number of workers takes "
            "enough off it, because a task cannot be divided: spread the keys over more partitions."
        )

    def stabilizing(self, choice: Choice) -> str:
        """Fewer workers seem to suffice."""
        return (
            f"{_workers(choice.replicas)} would be enough; scaling in waits until that has been so for "
            f"{_duration(self._policy.stabilization)}."
        )

    def catching_up(self, lag_seconds: float) -> str:
        """Lag is worked off."""
        return f"All workers stay while lag is worked off: records wait up to {min(lag_seconds, 86_400):.0f} s."

    def budget_spent(self, wanted: int, used: int) -> str:
        """No rescale is left."""
        return (
            f"{_workers(wanted)} would be right, but {used} rescales in 24 hours are as many as "
            f"spec.autoscaling.rescalesPerDay ({self._policy.rescales_per_day}) allows."
        )


def _shown(load: Load) -> float:
    return max(load.arriving, load.with_lag)


def _percent(share: float) -> str:
    return f"{round(share * 100)} %" if share <= _MOST else f"more than {_MOST * 100} %"


def _workers(number: int) -> str:
    return "1 worker" if number == 1 else f"{number} workers"


def _duration(duration: timedelta) -> str:
    return str(Duration.of(duration))
