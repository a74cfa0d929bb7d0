"""The accuracy of a StreamApp's status over time: conditions that are wrong for too long, and conditions that flap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ("FLAP_S", "Lasted", "Moment", "false_reports", "flaps", "is_ready")

ALLOWED_DELAY_S = 5.0
"""A condition may be wrong for so long, without standstills of the machine."""
FLAP_S = 3.0
"""A value that returns sooner has flapped, unless both changes were correct."""
_REPORTED = ("Ready", "Progressing", "Degraded", "StandbysCaughtUp", "Suspended", "Stalled", "phase")


Lasted = Callable[[float, float], float]
"""The seconds between two moments, without standstills of the machine."""


def _lasted(begin: float, end: float) -> float:
    """Return the seconds between two moments of a clock that never stands still."""
    return end - begin


@dataclass(frozen=True)
class Moment:
    """The reported status and the facts at one moment."""

    at: float
    reported: Mapping[str, str]
    """The status of each condition by type, and the phase under `phase`."""
    workers: int
    """The number of workers that run and are ready, as nodes and Kafka know."""
    wanted: int
    tasks: int
    """The number of tasks that a worker processes."""
    copies: int
    """The number of tasks with a standby on another live worker; -1 if it is not known."""
    total: int
    steady: bool
    """Whether exactly the requested pods exist, with the requested image."""

    @property
    def complete(self) -> bool:
        """Whether everything runs."""
        return self.workers == self.wanted and self.tasks == self.total and self.steady

    def text(self) -> str:
        """Return one line for logs."""
        reported = " ".join(f"{key}={value}" for key, value in self.reported.items())
        return (
            f"{self.at:9.2f} {reported} | {self.workers}/{self.wanted} workers {self.tasks}/{self.total} tasks "
            f"{self.copies} copies"
        )


def false_reports(moments: Sequence[Moment], lasted: Lasted = _lasted) -> list[str]:
    """Return conditions that were wrong for longer than `ALLOWED_DELAY_S`."""
    found: list[str] = []
    for what, wrong in _WRONG.items():
        since: float | None = None
        for moment in moments:
            if not wrong(moment):
                since = None
                continue
            since = moment.at if since is None else since
            if lasted(since, moment.at) > ALLOWED_DELAY_S:
                found.append(f"{what} since {since:.2f}: {moment.text()}")
                break
    return found


def flaps(moments: Sequence[Moment], lasted: Lasted = _lasted) -> list[str]:
    """Return conditions that changed and returned within `FLAP_S` although the facts did not change."""
    return [each for key in _REPORTED for each in _flaps_of(key, moments, lasted)]


def _flaps_of(key: str, moments: Sequence[Moment], lasted: Lasted) -> list[str]:
    runs: list[tuple[str, float, Moment]] = []
    for moment in moments:
        value = moment.reported.get(key, "")
        if not runs or runs[-1][0] != value:
            runs.append((value, moment.at, moment))
    return [
        f"{key} was '{value}' for {after[1] - at:.1f} s between two '{before[0]}': {moment.text()}"
        for before, (value, at, moment), after in zip(runs, runs[1:], runs[2:], strict=False)
        if before[0] == after[0] and after[1] - at < FLAP_S and not _was_true(key, value, at, after[1], moments, lasted)
    ]


def _was_true(key: str, value: str, since: float, until: float, moments: Sequence[Moment], lasted: Lasted) -> bool:
    """Return whether a value that was reported for a moment was true around that time."""
    truth = _TRUTH.get((key, value))
    return truth is not None and any(
        truth(each) for each in moments if each.at <= until and lasted(each.at, since) <= ALLOWED_DELAY_S
    )


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the API server shows a pod as ready, and not being deleted."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions: list[dict[str, Any]] = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


_WRONG: Mapping[str, Callable[[Moment], bool]] = {
    "Ready is True": lambda now: now.reported.get("Ready") == "True" and not now.complete,
    "Ready is False": lambda now: now.reported.get("Ready") == "False" and now.complete and now.wanted > 0,
    "Progressing is False": lambda now: (
        now.reported.get("Progressing") == "False"
        and "Stalled" not in now.reported
        and not now.complete
        and now.wanted > 0
    ),
    "Progressing is True": lambda now: now.reported.get("Progressing") == "True" and now.complete,
    "Degraded is True": lambda now: now.reported.get("Degraded") == "True" and now.complete,
    "StandbysCaughtUp is True": lambda now: (
        now.reported.get("StandbysCaughtUp") == "True" and now.wanted > 1 and 0 <= now.copies < now.total
    ),
    "StandbysCaughtUp is False": lambda now: (
        now.reported.get("StandbysCaughtUp") == "False" and now.complete and now.wanted > 1 and now.copies == now.total
    ),
    "Suspended is True": lambda now: now.reported.get("Suspended") == "True" and (now.workers > 0 or now.wanted > 0),
    "Suspended is False": lambda now: (
        now.reported.get("Suspended") == "False" and now.wanted == 0 and now.workers == 0 and now.steady
    ),
    "the phase is Running": lambda now: now.reported.get("phase") == "Running" and now.wanted == 0,
    "the phase is Scaling": lambda now: now.reported.get("phase") == "Scaling" and now.complete,
}
_TRUTH: Mapping[tuple[str, str], Callable[[Moment], bool]] = {
    ("Ready", "False"): lambda now: not now.complete,
    ("Ready", "True"): lambda now: now.complete,
    ("Progressing", "True"): lambda now: not now.complete,
    ("Progressing", "False"): lambda now: now.complete,
    ("StandbysCaughtUp", "False"): lambda now: now.copies < now.total,
    ("StandbysCaughtUp", "True"): lambda now: now.copies in {now.total, -1},
    ("Degraded", "True"): lambda now: not now.complete,
    ("Degraded", "False"): lambda now: now.complete,
    ("Stalled", "True"): lambda now: not now.steady,
    ("Suspended", "True"): lambda now: now.wanted == 0,
    ("Suspended", "False"): lambda now: now.wanted > 0,
    ("phase", "Running"): lambda now: now.complete,
    ("phase", "RollingOut"): lambda now: not now.steady,
    ("phase", "RollingBack"): lambda now: not now.steady,
    ("phase", "Scaling"): lambda now: not now.complete,
    ("phase", "Suspending"): lambda now: now.wanted == 0,
    ("phase", "Suspended"): lambda now: now.wanted == 0,
}
