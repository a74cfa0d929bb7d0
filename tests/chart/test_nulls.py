"""Null removes the default of a value in Helm: the chart renders without it, or refuses it with the value's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helm.generate import CHART
from tests.chart.leaf_values import CONTEXTS
from tests.chart.rendering import Refused, merged, with_value

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
REMOVABLE = {
    "resources": "no requests and limits",
    "resources.requests": "no requests",
    "resources.requests.cpu": "no request of CPU",
    "resources.requests.memory": "no request of memory",
    "resources.limits": "no limits",
    "resources.limits.memory": "no limit of memory",
    "tolerations": "those of the cluster",
    "podSecurityContext.runAsUser": "chosen by the cluster",
    "podSecurityContext.runAsGroup": "chosen by the cluster",
    "podSecurityContext.fsGroup": "chosen by the cluster",
    "podDisruptionBudget.maxUnavailable": "minAvailable in its place",
    "networkPolicy.scrape.namespaceLabels": "only the own namespace",
    "monitoring.dashboards.labels": "no labels by which Grafana finds them",
}
"""Values with a default that may be null, and what null means. Where the default is empty, null is the same."""
BESIDE: dict[str, dict[str, Any]] = {"podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"minAvailable": 1}}}
NO_DEFINITIONS = {"crds": {"install": False}}


def values(given: dict[str, Any] = DEFAULTS, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the default of each value and of each group of values; labels are one value."""
    for name, default in given.items():
        path = f"{above}.{name}" if above else name
        yield path, default
        if isinstance(default, dict) and not path.endswith(("Labels", "labels")):
            yield from values(default, path)


ALLOWED = [path for path, default in values() if path in REMOVABLE or (not default and default is not False)]
SWITCHED_OFF = [path for path, default in values() if default is False and not path.startswith("securityContext.")]
REFUSED = [path for path, _ in values() if path not in {*ALLOWED, *SWITCHED_OFF}]


def context_of(path: str) -> dict[str, Any]:
    """Return the values with which this one has an effect."""
    parts = path.split(".")
    prefixes = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
    found = [CONTEXTS[each] for each in prefixes if each in CONTEXTS and not _sets(CONTEXTS[each], path)]
    return merged({} if path.startswith("crds") else NO_DEFINITIONS, *found, BESIDE.get(path, {}))


def _sets(given: Any, path: str) -> bool:
    name, _, rest = path.partition(".")
    return isinstance(given, dict) and name in given and (not rest or _sets(given[name], rest))


def test_all_values_are_tried() -> None:
    assert len(ALLOWED) + len(SWITCHED_OFF) + len(REFUSED) == len(list(values())) > 120
    assert REMOVABLE.keys() <= {path for path, _ in values()}


@pytest.mark.share(20)
@pytest.mark.parametrize("path", [*ALLOWED, *SWITCHED_OFF])
def test_null_is_an_empty_value_where_that_has_a_meaning(path, rendering):
    """It renders what an empty value renders, and nowhere Go's word for null."""
    context, default = context_of(path), dict(values())[path]
    text = rendering.text(merged(context, with_value(path, None)))
    assert "<nil>" not in text
    assert not re.search(r"^[\w ./-]+: null$", text, re.MULTILINE)
    if path not in REMOVABLE:
        assert text == rendering.text(merged(context, with_value(path, default)))


@pytest.mark.parametrize("depth", range(1, 5))
def test_every_other_null_is_refused_by_the_schema_with_its_name(depth, each_rendering):
    """Helm reports all of them together: one line for each, in the place of an error inside a template."""
    paths = [path for path in REFUSED if path.count(".") == depth - 1]
    with pytest.raises(Refused) as refused:
        each_rendering.text(merged(*(with_value(path, None) for path in paths)))
    told = str(refused.value)
    assert "nil pointer" not in told
    assert [path for path in paths if not _named(path, told)] == []


def _named(path: str, told: str) -> bool:
    *group, name = path.split(".")
    place = f"at '{''.join(f'/{each}' for each in group)}': missing propert"
    return any(place in line and f"'{name}'" in line for line in told.splitlines())
