"""Every query of the dashboards and rules, evaluated by a real Prometheus that scrapes a running application."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from monitoring.queries import interpolate, panel_queries, selectors
from tests.monitoring import live
from tests.support import kafka
from tests.support.broker import Broker
from tests.support.programs.prometheus import Tools

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(360)]

DASHBOARDS = [json.loads(each.read_text()) for each in sorted((live.ROOT / "helm/millpond/files/dashboards").glob("*"))]
#: Metrics without samples here, with the reason.
ABSENT = {
    "millpond_bootstrap_waiting_tasks": "the workers have no location of snapshots",
    "millpond_bootstrap_fetched_bytes_total": "the workers have no location of snapshots",
    "millpond_bootstrap_ingested_rows_total": "the workers have no location of snapshots",
}


@pytest.fixture(scope="module")
def scraped(
    broker: Broker, prometheus: Tools, processes: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[live.Prometheus]:
    """A Prometheus that has scraped an application, its coordinator and an operator for a while."""
    with live.running(broker, prometheus, tmp_path_factory.mktemp("live"), f"orders-{uuid.uuid4().hex[:8]}") as system:
        system.await_data()
        yield system.prometheus


def test_every_query_of_the_dashboards_returns_data(scraped: live.Prometheus) -> None:
    """A panel without data says nothing, and nobody notices that its metric was renamed."""
    empty = [query for dashboard in DASHBOARDS for query in panel_queries(dashboard)]

    def all_have_data() -> bool:
        """Rules over rates have a value some evaluations after the first scrape."""
        empty[:] = [query for query in empty if not _has_data(scraped, interpolate(query.expr))]
        return not empty

    kafka.eventually(all_have_data, "every query returns data", timeout_s=60)


def _has_data(prometheus: live.Prometheus, expr: str) -> bool:
    return bool(prometheus.query(expr)) or any(name in ABSENT for name, _ in selectors(expr))


def test_every_variable_of_the_dashboards_has_values(scraped: live.Prometheus) -> None:
    """A dashboard without an application to choose is useless."""
    for dashboard in DASHBOARDS:
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                selector, _, label = variable["query"].removeprefix("label_values(").rstrip(")").rpartition(", ")
                path, match = f"label/{label}/values", {"match[]": interpolate(selector)}
                kafka.eventually(
                    lambda path=path, match=match: bool(scraped.get(path, **match)),
                    f"{dashboard['title']}: {variable['name']} has values",
                )


def test_every_rule_is_evaluated_on_existing_metrics(scraped: live.Prometheus) -> None:
    """An alert on a metric or a label that does not exist never fires."""

    def labels_of(name: str) -> set[str]:
        return set().union(*(each.keys() for each in scraped.get("series", **{"match[]": name})))

    for group in scraped.get("rules")["groups"]:
        for rule in group["rules"]:
            assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule
            for name, labels in selectors(rule["query"]):
                if name not in ABSENT:
                    # Rules over rates have a value some evaluations after the first scrape.
                    kafka.eventually(
                        lambda name=name, labels=labels: labels_of(name) >= {"__name__", *labels},
                        lambda name=name, labels=labels, rule=rule: (
                            f"{rule['name']}: {name} with the labels {labels}, and not {labels_of(name)}"
                        ),
                    )


def test_what_is_declared_absent_is_absent(scraped: live.Prometheus) -> None:
    """An exception that is not needed any more is removed."""
    assert [name for name in ABSENT if scraped.query(name)] == []


def test_the_alert_about_a_degraded_streamapp_is_pending_for_it_alone(scraped: live.Prometheus) -> None:
    """The StreamApp whose image does not exist, and not the healthy ones."""

    def degraded() -> set[str]:
        alerts = scraped.get("alerts")["alerts"]
        return {each["labels"]["name"] for each in alerts if each["labels"]["alertname"] == "StreamAppDegraded"}

    kafka.eventually(lambda: bool(degraded()), "the alert is pending")
    assert degraded() == {"payments"}
