"""The parts of a rule file."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

__all__ = ("CRITICAL", "RUNBOOKS", "WARNING", "Alert", "Group", "Recording", "duration")

RUNBOOKS = "https://millpond.dev/docs/runbooks"
"""Where the documentation is served. Someone who serves it elsewhere replaces it in the rules and dashboards."""

CRITICAL = "critical"
"""A person has to act now: records are not processed, or will not be soon."""
WARNING = "warning"
"""A person has to act in working hours: the application runs, with less safety or a wrong result somewhere."""


@dataclass(frozen=True)
class Recording:
    """A recording rule."""

    name: str
    expr: str

    def as_object(self) -> dict[str, Any]:
        """Return it as in a rule file."""
        return {"record": self.name, "expr": _flat(self.expr)}


@dataclass(frozen=True)
class Alert:
    """An alert."""

    name: str
    """As in the issue tracker of the project and in `docs/runbooks/NAME.md`."""
    expr: str
    hold: timedelta
    """How long the expression has to hold (`for`)."""
    severity: str
    summary: str
    """One line, with the labels that tell which application or worker."""
    description: str
    """What it means, and what follows if nobody acts."""
    anchor: str = ""
    """The section of the runbook, which may have labels in it."""
    labels: dict[str, str] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        """Return it as in a rule file."""
        anchor = f"#{self.anchor}" if self.anchor else ""
        return {
            "alert": self.name,
            "expr": _flat(self.expr),
            "for": duration(self.hold),
            "labels": {"severity": self.severity, "part_of": "millpond", **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": _flat(self.description),
                "runbook_url": f"{RUNBOOKS}/{self.name}.html{anchor}",
            },
        }


@dataclass(frozen=True)
class Group:
    """A group of rules that are evaluated together."""

    name: str
    rules: tuple[Alert | Recording, ...]

    def as_object(self) -> dict[str, Any]:
        """Return it as in a rule file."""
        return {"name": self.name, "rules": [each.as_object() for each in self.rules]}


def duration(span: timedelta) -> str:
    """Return a duration as Prometheus writes it: `1h`, `90s`."""
    seconds = int(span.total_seconds())
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _flat(text: str) -> str:
    """Return an expression or a text without the indentation of the source file."""
    return " ".join(textwrap.dedent(text).split())
