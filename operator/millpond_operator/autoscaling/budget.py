"""The rescales of a day."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from .model import AutoscalingStatus, Policy, past, timestamp

__all__ = ("may_rescale", "noted", "with_recent")

_DAY = timedelta(days=1)


def with_recent(status: AutoscalingStatus, now: datetime) -> AutoscalingStatus:
    """Return the status with the rescales of the last 24 hours only. One in the future becomes one of now."""
    times = (past(each, now) for each in status.rescales)
    recent = tuple(timestamp(at) for at in times if at is not None and now - at < _DAY)
    last = past(status.last_scale_time, now)
    return msgspec.structs.replace(
        status,
        rescales=recent,
        rescales_today=len(recent),
        last_scale_time="" if last is None else timestamp(last),
    )


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
