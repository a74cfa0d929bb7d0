"""The dashboards of Grafana: operator, application, worker, state and snapshots."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from monitoring.dashboards import application, operator, state, worker

__all__ = ("all_dashboards",)


def all_dashboards() -> list[Dashboard]:
    """Return all dashboards."""
    return [each.dashboard() for each in (operator, application, worker, state)]
