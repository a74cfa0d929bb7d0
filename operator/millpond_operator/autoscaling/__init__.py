"""The autoscaler: how many workers an application needs, from the rates that its workers measure.

It has no clock and no I/O, so simulations and the operator run the same code:

    autoscaler = Autoscaler(policy)
    autoscaler.observe(now, loads)                              # every few seconds
    status = autoscaler.decide(now, situation, status)          # the status is saved before anything is done
"""

from __future__ import annotations

from .autoscaler import Autoscaler
from .estimate import busiest, steps
from .measurement import Measurement, TaskDemand, Unmeasured
from .model import (
    AUTO,
    RECOMMEND,
    AutoscalingStatus,
    Policy,
    Reason,
    ReportedLoad,
    Situation,
)
from .replicas import effective_replicas

__all__ = (
    "AUTO",
    "RECOMMEND",
    "Autoscaler",
    "AutoscalingStatus",
    "Measurement",
    "Policy",
    "Reason",
    "ReportedLoad",
    "Situation",
    "TaskDemand",
    "Unmeasured",
    "busiest",
    "effective_replicas",
    "steps",
)
