"""The rescales of a day."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from .model import AutoscalingStatus, Policy, timestamp, when

__all__ = ("may_rescale", "noted", "with_recent")

_DAY = timedelta(days=1)


def with_recent(status: AutoscalingStatus, now: datetime) -> AutoscalingStatus:
    """Return the status with the rescales of the last 24 hours only."""
    recent = tuple(each for each in status.rescales if (at := when(each)) is not None and now - at < _DAY)
    return msgspec.structs.replace(status, rescales=recent, rescales_today=len(recent))


def may_rescale(status: AutoscalingStatus, policy: Policy, *, in_danger: bool) -> bool:
    """Return whether the budget allows a rescale.

    Args:
        status: with recent rescales only.
        policy: has the budget.
        in_danger: whether the target lag is exceeded, or about to be: then the reserve may be used, too.
    """
    return len(status.rescales) < policy.rescales_per_day + (policy.reserve if in_danger else 0)


def noted(status: AutoscalingStatus, now: datetime) -> AutoscalingStatus:
    """Return the status with one more rescale."""
    at = timestamp(now)
    rescales = (*status.rescales, at)
    return msgspec.structs.replace(status, rescales=rescales, rescales_today=len(rescales), last_scale_time=at)
