"""Recording rules and alerts for Prometheus."""

from __future__ import annotations

from monitoring.rules import applications, operator, slo
from monitoring.rules.model import Alert, Group, Recording

__all__ = ("FILES", "Alert", "Group", "Recording", "alerts")

FILES: dict[str, tuple[Group, ...]] = {
    "millpond-slo.yaml": slo.GROUPS,
    "millpond-applications.yaml": applications.GROUPS,
    "millpond-operator.yaml": operator.GROUPS,
}
"""The rule groups of each file."""


def alerts() -> list[Alert]:
    """Return all alerts; one name may occur twice, with two severities."""
    rules = [rule for groups in FILES.values() for group in groups for rule in group.rules]
    return [rule for rule in rules if isinstance(rule, Alert)]
