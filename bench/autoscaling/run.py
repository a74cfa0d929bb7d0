"""One trace replayed against one autoscaler, and the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field

from millpond_operator.autoscaling import Policy

from .application import Application, Costs
from .scalers import INTERVAL_S, Built, Cpu, LagThreshold, Scaler, oracle
from .traces import Trace

__all__ = ("SCALERS", "Outcome", "replay")

SCALERS = ("millpond", "lag threshold (KEDA)", "CPU 70 % (HPA)")
TICK_S = 3.0
_BURST_S = 1800.0
_DAY_S = 86_400.0
_POINTS = 400
_THRESHOLD_S = 3.0
"""The lag threshold: what a worker processes in this time. Of 0.3, 1, 3, 9 and 30 s, this one does best."""


@dataclass
class Outcome:
    """The outcome of one trace with one autoscaler."""

    trace: str
    scaler: str
    seed: int
    seconds: float = 0.0
    good_seconds: float = 0.0
    """With lag within the target."""
    worker_seconds: float = 0.0
    oracle_seconds: float = 0.0
    most: int = 0
    """The largest number of workers."""
    rescales: list[float] = field(default_factory=list)
    """When."""
    workers: list[tuple[float, int]] = field(default_factory=list)
    """The number of workers over time, for drawing."""
    lag: list[tuple[float, float]] = field(default_factory=list)
    """The lag in seconds over time, for drawing."""
    ideal: list[tuple[float, int]] = field(default_factory=list)
    """The oracle's number over time."""
    load: list[tuple[float, float]] = field(default_factory=list)
    """Records per second over time."""
    reasons: list[tuple[float, str, str]] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """The most rescales in a row with less than half an hour between each two."""
        longest = run = 0
        for number, at in enumerate(self.rescales):
            run = run + 1 if number and at - self.rescales[number - 1] < _BURST_S else 1
            longest = max(longest, run)
        return longest

    @property
    def rescales_per_day(self) -> int:
        """The most rescales within 24 hours."""
        return max((sum(at <= each < at + _DAY_S for each in self.rescales) for at in self.rescales), default=0)

    @property
    def within(self) -> float:
        """The share of time with lag within the target."""
        return self.good_seconds / self.seconds

    @property
    def hours(self) -> float:
        """Worker-hours, relative to the oracle's."""
        return self.worker_seconds / self.oracle_seconds


def replay(
    trace: Trace, scaler: str, policy: Policy, costs: Costs | None = None, seed: int = 1, tick_s: float = TICK_S
) -> Outcome:
    """Replay a trace.

    Args:
        trace: the load.
        scaler: one of `SCALERS`.
        policy: the autoscaling of the StreamApp; the others get the same bounds and targets.
        costs: what things take.
        seed: of the noise.
        tick_s: the resolution in seconds.
    """
    costs = costs or Costs()
    first = oracle(trace.at(0.0), costs.record_s, policy)
    most = min(policy.max_replicas, trace.partitions)
    application = Application(trace.partitions, first, costs, seed)
    made: Scaler
    if scaler == SCALERS[0]:
        made = Built(policy, first)
    elif scaler == SCALERS[1]:
        made = LagThreshold(most, _THRESHOLD_S / costs.record_s)
    else:
        made = Cpu(most, policy.target_utilization)
    outcome = Outcome(trace.name, scaler, seed)
    next_decision, next_point, ideal = 0.0, 0.0, first
    while application.now < trace.length:
        rates = trace.at(application.now)
        application.tick(rates, tick_s)
        if application.now >= next_decision:
            next_decision += INTERVAL_S
            wanted = made.decide(application)
            if wanted != application.wanted:
                outcome.rescales.append(application.now)
            application.scale(wanted)
            ideal = oracle(rates, costs.record_s, policy)
        outcome.seconds += tick_s
        outcome.good_seconds += tick_s * (application.lag_seconds <= policy.target_lag.total_seconds())
        outcome.worker_seconds += tick_s * len(application.workers)
        outcome.oracle_seconds += tick_s * ideal
        outcome.most = max(outcome.most, len(application.workers))
        if application.now >= next_point:
            next_point += trace.length / _POINTS
            outcome.workers.append((application.now, len(application.workers)))
            outcome.ideal.append((application.now, ideal))
            outcome.lag.append((application.now, application.lag_seconds))
            outcome.load.append((application.now, sum(rates)))
    if isinstance(made, Built):
        outcome.reasons = made.reasons
    return outcome
