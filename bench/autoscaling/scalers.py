"""The autoscalers that are compared, behind one interface."""

from __future__ import annotations

import math
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Protocol

from millpond_operator.autoscaling import (
    Autoscaler,
    AutoscalingStatus,
    Policy,
    Situation,
    busiest,
    effective_replicas,
)

from .application import Application

__all__ = ("INTERVAL_S", "Built", "Cpu", "LagThreshold", "Scaler", "oracle")

INTERVAL_S = 15.0
"""How often all of them look: the default of a HorizontalPodAutoscaler, and of millpond's operator."""
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
_TOLERANCE = 0.1
_STABILIZATION_S = 300.0


class Scaler(Protocol):
    """Decides on the number of workers of an application."""

    def decide(self, application: Application) -> int:
        """Return the wanted number of workers; called every `INTERVAL_S`."""


class Built:
    """millpond's own autoscaler: the operator's code.

    Args:
        policy: the autoscaling of the StreamApp.
        workers: the number of workers at the beginning.
    """

    def __init__(self, policy: Policy, workers: int) -> None:
        self._autoscaler = Autoscaler(policy)
        self._replicas = workers
        self.status: AutoscalingStatus | None = None
        self.reasons: list[tuple[float, str, str]] = []
        """When the status changed: seconds, reason, message."""

    def decide(self, application: Application) -> int:
        now = _EPOCH + timedelta(seconds=application.now)
        self._autoscaler.observe(now, application.loads())
        situation = Situation(self._replicas, {0: len(application.lag)}, application.unsteady)
        status = self._autoscaler.decide(now, situation, self.status)
        if status != self.status:
            self.status = status
            self.reasons.append((application.now, status.reason, status.message))
        return effective_replicas(self._replicas, self._autoscaler.policy, status)


class _Hpa:
    """The HorizontalPodAutoscaler beneath both others: the highest wish of five minutes, and limited steps up."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._wishes: deque[tuple[float, int]] = deque()

    def apply(self, application: Application, wish: int) -> int:
        """Return the number of workers for a wish."""
        now, current = application.now, application.wanted
        self._wishes.append((now, min(max(wish, 1), self._most)))
        while self._wishes[0][0] < now - _STABILIZATION_S:
            self._wishes.popleft()
        if wish >= current:
            return min(max(wish, 1), self._most, max(2 * current, current + 4))
        return min(current, max(number for _, number in self._wishes))


class LagThreshold:
    """KEDA's Kafka scaler: total lag divided by a threshold, at most one worker for each partition.

    Args:
        most: the number of partitions.
        threshold: `lagThreshold`, in records.
    """

    def __init__(self, most: int, threshold: float) -> None:
        self._hpa = _Hpa(most)
        self._threshold = threshold

    def decide(self, application: Application) -> int:
        lag, current = sum(application.lag), application.wanted
        ratio = lag / self._threshold / current
        wish = current if abs(ratio - 1) <= _TOLERANCE else math.ceil(lag / self._threshold)
        return self._hpa.apply(application, wish)


class Cpu:
    """A HorizontalPodAutoscaler on CPU: the mean of the last minute, compared with a target.

    Args:
        most: the number of partitions.
        target: the target utilisation, 0 to 1.
    """

    def __init__(self, most: int, target: float = 0.7) -> None:
        self._hpa = _Hpa(most)
        self._target = target
        self._means: deque[float] = deque(maxlen=4)

    def decide(self, application: Application) -> int:
        self._means.append(sum(application.busy.values()) / len(application.busy))
        current = application.wanted
        ratio = sum(self._means) / len(self._means) / self._target
        wish = current if abs(ratio - 1) <= _TOLERANCE else math.ceil(ratio * len(application.busy))
        return self._hpa.apply(application, wish)


def oracle(rates: list[float], cost_s: float, policy: Policy) -> int:
    """Return the fewest workers with which the busiest one is within the target: known at once, and changed at once."""
    loads = {0: sorted((rate * cost_s for rate in rates), reverse=True)}
    most = min(policy.max_replicas, len(rates))
    for workers in range(policy.min_replicas, most):
        if busiest(loads, workers) <= policy.target_utilization:
            return workers
    return most
