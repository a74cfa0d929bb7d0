"""Label selectors and field selectors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster.memory.failures import bad_request
from tests.cluster.memory.kinds import Kind

__all__ = ("by_fields", "by_labels", "by_selector")

Object = dict[str, Any]
Labels = Mapping[str, str]
_REQUIREMENT = re.compile(
    r"\s*(?:(?P<not>!)?\s*(?P<key>[^\s=!,()<>]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<in>in|notin)\s*\((?P<values>[^)]*)\))?)\s*(?:,|$)"
)


@functools.lru_cache(maxsize=1024)
def by_labels(text: str) -> Callable[[Labels], bool]:
    """Whether labels match a selector, such as `a=b,c in (d,e),!f`.

    Raises:
        ApiFailure: it is invalid.
    """
    tests: list[Callable[[Labels], bool]] = []
    at = 0
    while at < len(text):
        match = _REQUIREMENT.match(text, at)
        if match is None or match.end() == at:
            raise bad_request(f'unable to parse requirement: found "{text[at:]}"')
        at = match.end()
        tests.append(_requirement(match))
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(match: re.Match[str]) -> Callable[[Labels], bool]:
    key, value = match["key"], match["value"]
    if match["op"] in {"=", "=="}:
        return lambda labels: labels.get(key) == value
    if match["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if match["in"]:
        values = frozenset(each.strip() for each in match["values"].split(","))
        if match["in"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match["not"]:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def by_selector(selector: Object | None) -> Callable[[Labels], bool]:
    """Whether labels match a LabelSelector; None matches nothing."""
    if selector is None:
        return lambda labels: False
    wanted = (selector.get("matchLabels") or {}).items()
    expressions = selector.get("matchExpressions") or ()

    def fits(labels: Labels) -> bool:
        return wanted <= labels.items() and all(_expression(each, labels) for each in expressions)

    return fits


def _expression(expression: Object, labels: Labels) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
    return key not in labels


_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    "namespaces": ("status.phase",),
    "nodes": ("spec.unschedulable",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "jobs": ("status.successful",),
}


def by_fields(kind: Kind, text: str) -> Callable[[Object], bool]:
    """Whether an object matches a field selector.

    Raises:
        ApiFailure: it is invalid, or uses a field that is not supported.
    """
    tests: list[tuple[tuple[str, ...], bool, str]] = []
    for term in filter(None, text.split(",")):
        path, sign, value = (each.strip() for each in re.split(r"(!=|==|=)", term, maxsplit=1))
        if path not in {"metadata.name", "metadata.namespace", *_FIELDS.get(kind.plural, ())}:
            raise bad_request(f"field label not supported: {path}")
        tests.append((tuple(path.split(".")), sign != "!=", value))

    def fits(item: Object) -> bool:
        return all((_field(item, path) == value) == wanted for path, wanted, value in tests)

    return fits


def _field(item: Object, path: tuple[str, ...]) -> str:
    if path == ("source",):
        return str((item.get("source") or {}).get("component", ""))
    value: Any = item
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
