"""The security model has every right of the operator, with its reason, and every setting that bounds StreamApps."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import yaml

from millpond_operator.controllers.settings import Settings

ROOT = Path(__file__).parents[2]
#: A rule: the role, API group, resources, names and verbs.
Rule = tuple[str, str, frozenset[str], frozenset[str], frozenset[str]]


def words(cell: str) -> frozenset[str]:
    return frozenset(each.strip() for each in cell.split(",") if each.strip())


def documented() -> dict[Rule, str]:
    """Return the rules in the table of the page, with their reasons."""
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    section = text.split("## Rights of the operator", 1)[1].split("\n### ", 1)[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("| `")]
    found = {}
    for row in rows:
        role, group, resources, names, verbs, why = (cell.strip() for cell in row)
        group = "" if group == "core" else group
        found[role.replace("`", ""), group, words(resources), words(names), words(verbs)] = why
    return found


def installed() -> set[Rule]:
    """Return the rules of the manifests."""
    found = set()
    for each in yaml.safe_load_all((ROOT / "deploy/access.yaml").read_text(encoding="utf-8")):
        if each["kind"] in {"Role", "ClusterRole"}:
            role = each["metadata"]["name"] + (" (own namespace)" if each["kind"] == "Role" else "")
            for rule in each["rules"]:
                (group,) = rule["apiGroups"]
                parts = (rule["resources"], rule.get("resourceNames", ()), rule["verbs"])
                resources, names, verbs = map(frozenset, parts)
                found.add((role, group, resources, names, verbs))
    return found


def test_every_right_has_a_reason_and_every_reason_a_right() -> None:
    """A rule of deploy/access.yaml that is added or changed is explained."""
    table = documented()
    assert set(table) == installed()
    assert all(table.values())


def test_every_limit_is_explained() -> None:
    """So is each other setting about security."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    limits = [each.name for each in dataclasses.fields(Settings) if each.name.startswith("allowed_")]
    assert len(limits) == 3
    for name in (*limits, "token_verification", "certificate_source"):
        assert f"`--{name.replace('_', '-')}" in page
