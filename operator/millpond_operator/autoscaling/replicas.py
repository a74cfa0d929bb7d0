"""The number of workers that is wanted: `spec.replicas`, or the autoscaler's number in mode Auto."""

from __future__ import annotations

from .model import AUTO, AutoscalingStatus, Policy

__all__ = ("clamped", "effective_replicas")


def effective_replicas(spec_replicas: int, policy: Policy | None, status: AutoscalingStatus | None) -> int:
    """Return the wanted number of workers.

    Without autoscaling, in mode Recommend, and with 0 replicas, `spec.replicas` decides. In mode Auto the saved number
    does, within the present bounds, until a person changes `spec.replicas`: then the autoscaler starts from there.

    Args:
        spec_replicas: `spec.replicas`.
        policy: `spec.autoscaling`; None when there is none, or another autoscaler is at work.
        status: `status.autoscaling`; None before the first decision.
    """
    if policy is None or policy.mode != AUTO or spec_replicas == 0:
        return spec_replicas
    if status is None or status.mode != AUTO or status.spec_replicas != spec_replicas:
        return clamped(spec_replicas, policy)
    return clamped(status.current_replicas, policy)


def clamped(replicas: int, policy: Policy) -> int:
    """Return a number of workers within the bounds of the policy."""
    return min(max(replicas, policy.min_replicas), policy.max_replicas)
