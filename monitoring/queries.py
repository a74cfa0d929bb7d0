"""Queries of dashboards and rules, as Prometheus evaluates them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ("PanelQuery", "interpolate", "panel_queries", "panels", "selectors")

_BUILT_IN = {"$__rate_interval": "10s", "$__interval": "5s", "$__range": "5m"}
_NOT_METRICS = frozenset(
    [
        "and",
        "or",
        "unless",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "offset",
        "bool",
        "inf",
        "nan",
        "sum",
        "max",
        "min",
        "avg",
        "count",
        "topk",
    ]
)


class PanelQuery(NamedTuple):
    """One query of a panel."""

    dashboard: str
    panel: str
    expr: str


def panels(dashboard: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the panels of a dashboard in JSON, rows excluded, in order."""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel


def panel_queries(dashboard: Mapping[str, Any]) -> Iterator[PanelQuery]:
    """Yield the queries of all panels."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield PanelQuery(dashboard["title"], panel["title"], target["expr"])


def interpolate(expr: str, variables: Mapping[str, str] = {}) -> str:
    """Return a query with Grafana's variables replaced; All (`.*`) where `variables` has no value."""
    for name, value in _BUILT_IN.items():
        expr = expr.replace(name, value)
    return re.sub(r"\$(\w+)", lambda found: variables.get(found[1], ".*"), expr)


def selectors(expr: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return the metric names of a PromQL expression, each with the names of the labels that it selects by."""
    found = []
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", expr)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    pattern = re.compile(
        r"""(?P<name>[a-zA-Z_:][\w:]*)\s*(?P<call>\()?(?P<labels>\{(?:[^"}]|"[^"]*")*\})?|"[^"]*"|\d+\w*"""
    )
    for match in pattern.finditer(bare):
        name = match["name"]
        if name is None or match["call"] or name.lower() in _NOT_METRICS:
            continue
        labels = re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', match["labels"] or "")
        found.append((name, tuple(labels)))
    return found
