"""Numbers, times and styles of the tables about running applications."""

from __future__ import annotations

from millpond.protocol.overview import TaskOverview

__all__ = ("GROWS", "STATE_STYLES", "ago", "behind", "number", "share", "span")

GROWS = "grows"
"""Shown for the time that a lag takes when it does not shrink."""

STATE_STYLES = {
    "alive": "green",
    "running": "green",
    "draining": "cyan",
    "releasing": "cyan",
    "starting": "yellow",
    "acquiring": "yellow",
    "restoring": "yellow",
    "gone": "red",
}
"""The styles of the states of workers and tasks."""

_UNITS = ((2 * 86_400, 86_400, "d"), (2 * 3_600, 3_600, "h"), (120, 60, "m"))


def number(value: float | None) -> str:
    """Return a number with separators; "-" if it is unknown."""
    return "-" if value is None else f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share of 0 to 1 in percent; "-" if it is unknown."""
    return "-" if value is None else f"{value:.0%}"


def span(seconds: float | None) -> str:
    """Return a time in its largest unit: `0.3 s`, `45 s`, `12 m`, `5 h`, `3 d`; "-" if it is unknown."""
    if seconds is None:
        return "-"
    for least, unit, name in _UNITS:
        if seconds >= least:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"


def ago(then_ms: int, now_ms: int) -> str:
    """Return the time since a moment; "" if the moment is unknown."""
    return span(max(0, now_ms - then_ms) // 1000) if then_ms else ""


def behind(tasks: list[TaskOverview]) -> str:
    """Return how long the lag of the slowest of some tasks takes; "-" if that is unknown."""
    if any(each.lag and each.lag_seconds is None and each.records_per_second is not None for each in tasks):
        return GROWS
    known = [each.lag_seconds for each in tasks if each.lag_seconds is not None]
    return span(max(known)) if known else "-"
