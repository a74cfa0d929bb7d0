"""Dashboards, rules and their documentation belong together."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from monitoring import dashboards, files, inventory, rules
from monitoring.metric_queries import query
from monitoring.queries import interpolate, panel_queries, panels, selectors
from monitoring.rules.model import RUNBOOKS
from monitoring.rules.operator import CRITICAL_REASONS, WARNING_REASONS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DASHBOARDS = [json.loads(text) for path, text in files.contents().items() if path.suffix == ".json"]
SECTIONS = ("## Meaning", "## How to see it", "## Causes and cures", "## What must not be done")


def test_files_are_what_the_code_makes() -> None:
    """`make dashboards` writes the chart's files and the tables of docs/monitoring.md."""
    assert files.stale() == [], "run `make dashboards`"


def test_the_query_of_each_metric_selects_it() -> None:
    """`docs/metrics.md` has one for each metric, and no other metric but one that is exported, too."""
    metrics = inventory.worker_metrics() | inventory.operator_metrics()
    assert len(metrics) > 100
    for name, (kind, _) in metrics.items():
        selected = [found.removesuffix("_bucket") for found, _ in selectors(query(name, kind))]
        assert name in selected
        assert set(selected) <= metrics.keys()


def test_dashboards_keep_their_uids() -> None:
    """Links of users and of the chart contain them."""
    uids = [each.uid for each in dashboards.all_dashboards()]
    assert uids == ["millpond-operator", "millpond-application", "millpond-worker", "millpond-state"]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])
def test_every_panel_is_described_and_has_a_place_of_its_own(dashboard) -> None:
    """A person sees what a panel says and in which unit, and no panel covers another."""
    taken = set()
    for panel in panels(dashboard):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        place = panel["gridPos"]
        cells = {(place["x"] + column, place["y"] + row) for column in range(place["w"]) for row in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])
def test_dashboards_lead_to_each_other_and_to_existing_runbooks(dashboard) -> None:
    """With the same time and variables."""
    others = next(each for each in dashboard["links"] if each["type"] == "dashboards")
    assert (others["tags"], others["includeVars"], others["keepTime"]) == (["millpond"], True, True)
    assert "millpond" in dashboard["tags"]
    urls = [link["url"] for panel in panels(dashboard) for link in panel.get("links", ())]
    assert len(urls) > 5
    for url in urls:
        name = url.removeprefix(f"{RUNBOOKS}/").removesuffix(".html")
        assert (DOCS / "runbooks" / f"{name}.md").exists(), url


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each["uid"])
def test_dashboards_use_only_variables_that_they_have(dashboard) -> None:
    """A variable that does not exist makes a query fail."""
    names = {each["name"] for each in dashboard["templating"]["list"]}
    used = {name for query in panel_queries(dashboard) for name in re.findall(r"\$(\w+)", query.expr)}
    assert {name for name in used if not name.startswith("__")} <= names


def test_the_application_shows_reasons_partitions_and_quantiles() -> None:
    """Dropped records by reason, lag by partition, and the latency of results from its histogram."""
    shown = {each.panel: each.expr for dashboard in DASHBOARDS for each in panel_queries(dashboard)}
    dropped = shown["Dropped records, by reason"]
    assert "by (reason)" in dropped
    assert "millpond_task_dropped_records_total" in dropped
    assert "by (topic, partition) (millpond_input_lag_records" in shown["Lag, by partition"]
    quantile = r"histogram_quantile\(0\.99, sum by \(le.*\) \(rate\(millpond_{}_bucket"
    assert re.match(quantile.format("worker_e2e_latency_seconds"), shown["End-to-end latency"])
    assert re.match(quantile.format("input_e2e_latency_seconds"), shown["Latency by sub-topology, p99"])


@pytest.mark.parametrize("name", sorted({each.name for each in rules.alerts()} - {"StreamAppDegraded"}))
def test_every_alert_has_a_runbook(name: str) -> None:
    """With what it means, how to see it, causes and cures, and what must not be done."""
    text = (DOCS / "runbooks" / f"{name}.md").read_text()
    assert re.findall(r"^## .*$", text, re.M) == list(SECTIONS)
    assert text.startswith(f"# {name}\n")


def test_runbooks_are_those_of_alerts() -> None:
    """A page of an alert that does not exist any more is deleted, and each is in the list."""
    pages = {each.stem for each in (DOCS / "runbooks").glob("*.md")} - {"index"}
    assert pages == {each.name for each in rules.alerts()}
    listed = (DOCS / "runbooks/index.md").read_text().splitlines()
    assert pages <= set(listed)


def test_every_reason_of_degraded_has_a_severity_and_a_section() -> None:
    """The reasons are those of the table in docs/kubernetes.md."""
    text = (DOCS / "kubernetes.md").read_text()
    table = text[text.index("| reason of `Degraded` |") :].split("\n\n")[0]
    documented = {reason for line in table.splitlines()[2:] for reason in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert documented == {*CRITICAL_REASONS, *WARNING_REASONS}
    assert not set(CRITICAL_REASONS) & set(WARNING_REASONS)
    sections = re.findall(r"^### (\w+)$", (DOCS / "runbooks/StreamAppDegraded.md").read_text(), re.M)
    assert sections == [*CRITICAL_REASONS, *WARNING_REASONS]


def test_selectors_are_found_in_expressions() -> None:
    """Metric names, with the labels that they are selected by; no functions, groupings or strings."""
    expr = (
        'sum by (le, x) (rate(a_total{b="c",d=~"e{f}"}[5m])) / on (y) group_left () (g:h > bool 1e3) or absent(i == 1)'
    )
    assert selectors(expr) == [("a_total", ("b", "d")), ("g:h", ()), ("i", ())]
    assert interpolate('a{b=~"$c"}[$__rate_interval]', {"c": "d"}) == 'a{b=~"d"}[10s]'
    assert interpolate('a{b=~"$c"}') == 'a{b=~".*"}'
