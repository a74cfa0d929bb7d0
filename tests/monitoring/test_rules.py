"""Alerts and recording rules in promtool: each alert fires and ends, and does not wake anybody without a reason."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring import inventory, rules
from monitoring.metric_queries import query
from monitoring.rules.operator import CRITICAL_REASONS, WARNING_REASONS
from tests.monitoring.cases import FIRING, QUIET, STREAM_APP
from tests.support.programs.prometheus import Tools

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "helm/millpond/files/rules").glob("*.yaml"))
DOCS = ROOT / "docs"
ALERTS = {(each.name, each.severity): each for each in rules.alerts()}


def _promtool(prometheus: Tools, *arguments: object) -> str:
    done = subprocess.run(
        [prometheus.promtool, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _rendered(text: str, labels: dict[str, str]) -> str:
    """Return a template with its labels filled in."""

    def value(found: re.Match[str]) -> str:
        label = labels[found[1]]
        return label.lower() if found[2] else label

    return re.sub(r"\{\{ \$labels\.(\w+)( \| toLower)? \}\}", value, text)


def _test(series: dict[str, str], **tests: Any) -> dict[str, Any]:
    listed = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": listed, **tests}


def _expected(alert: str, severity: str, labels: dict[str, str], summary: str) -> dict[str, Any]:
    rule = ALERTS[alert, severity].as_object()
    annotations = {name: _rendered(text, labels) for name, text in rule["annotations"].items() if name != "summary"}
    return {
        "exp_labels": labels | {"severity": severity, "part_of": "millpond"},
        "exp_annotations": annotations | {"summary": summary},
    }


def _run(prometheus: Tools, directory: Path, alert: str, tests: list[dict[str, Any]]) -> None:
    path = directory / "tests.yaml"
    files = [str(each) for each in FILES if f"alert: {alert}\n" in each.read_text()]
    document = {"rule_files": files, "evaluation_interval": "1m", "tests": tests}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    _promtool(prometheus, "test", "rules", path)


def test_promtool_accepts_the_rules(prometheus: Tools) -> None:
    """Each file is valid, and has no rule twice."""
    assert "SUCCESS" in _promtool(prometheus, "check", "rules", "--lint=all", "--lint-fatal", *FILES)


def test_promtool_accepts_the_query_of_each_metric(prometheus: Tools, tmp_path: Path) -> None:
    """The queries of `docs/metrics.md` are valid PromQL."""
    metrics = inventory.worker_metrics() | inventory.operator_metrics()
    recorded = [{"record": f"query:{name}", "expr": query(name, kind)} for name, (kind, _) in metrics.items()]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "metrics", "rules": recorded}]}))
    assert "SUCCESS" in _promtool(prometheus, "check", "rules", path)


@pytest.mark.parametrize("case", FIRING, ids=lambda each: f"{each.alert}-{each.severity}")
def test_alert_fires_and_ends(prometheus: Tools, tmp_path: Path, case: Any) -> None:
    """It names the application or worker in one line, has the runbook, and ends when the cause is gone."""
    expected = _expected(case.alert, case.severity, case.labels, case.summary)
    firing = f'ALERTS{{alertname="{case.alert}",severity="{case.severity}",alertstate="firing"}}'
    checks: dict[str, Any] = {"promql_expr_test": [{"expr": firing, "eval_time": f"{case.ends}m", "exp_samples": []}]}
    if case.summary:
        checks["alert_rule_test"] = [
            {"eval_time": "0m", "alertname": case.alert},
            {"eval_time": f"{case.fires}m", "alertname": case.alert, "exp_alerts": [expected]},
        ]
    else:
        labels = expected["exp_labels"] | {"alertname": case.alert, "alertstate": "firing"}
        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
        samples = [{"labels": f"ALERTS{{{text}}}", "value": 1}]
        checks["promql_expr_test"].append({"expr": firing, "eval_time": f"{case.fires}m", "exp_samples": samples})
    _run(prometheus, tmp_path, case.alert, [_test(case.series, **checks)])


@pytest.mark.parametrize("case", QUIET, ids=lambda each: f"{each.alert}: {each.why}")
def test_alert_stays_quiet(prometheus: Tools, tmp_path: Path, case: Any) -> None:
    """What belongs to normal operation wakes nobody."""
    fired = f'count_over_time(ALERTS{{alertname="{case.alert}",alertstate="firing"}}[{case.until}m])'
    checks = {"promql_expr_test": [{"expr": fired, "eval_time": f"{case.until}m", "exp_samples": []}]}
    _run(prometheus, tmp_path, case.alert, [_test(case.series, **checks)])


def test_every_reason_of_degraded_raises_an_alert_with_its_severity(prometheus: Tools, tmp_path: Path) -> None:
    """It names the reason, and leads to the section of the runbook about it."""
    series, expected = {}, []
    for severity, reasons in (("critical", CRITICAL_REASONS), ("warning", WARNING_REASONS)):
        for reason in reasons:
            type, status = ("Ready", "False") if reason == "NotServed" else ("Degraded", "True")
            name = f"app-{reason.lower()}"
            labels = STREAM_APP | {"name": name, "type": type, "status": status, "reason": reason}
            text = ",".join(f'{label}="{value}"' for label, value in labels.items())
            series[f"millpond_streamapp_condition{{{text}}}"] = "1x20 _x20"
            expected.append(_expected("StreamAppDegraded", severity, labels, f"StreamApp shop/{name}: {reason}"))
    checks = [
        {"eval_time": "15m", "alertname": "StreamAppDegraded", "exp_alerts": expected},
        {"eval_time": "30m", "alertname": "StreamAppDegraded", "exp_alerts": []},
    ]
    _run(prometheus, tmp_path, "StreamAppDegraded", [_test(series, alert_rule_test=checks)])


def test_every_alert_and_severity_has_a_case() -> None:
    """An alert that nobody has seen firing may never fire."""
    assert {(each.alert, each.severity) for each in FIRING} | {
        ("StreamAppDegraded", "critical"),
        ("StreamAppDegraded", "warning"),
    } == set(ALERTS)


def test_cluster_without_applications_raises_nothing(prometheus: Tools, tmp_path: Path) -> None:
    """An operator that leads and has nothing to do is well."""
    path = tmp_path / "tests.yaml"
    passes = 'controller_runtime_reconcile_total{namespace="millpond-system",controller="streamapp",result='
    series = {
        'millpond_operator_leading{namespace="millpond-system",instance="a",pod="a"}': "1x120",
        f'{passes}"error"}}': "0x120",
        f'{passes}"success"}}': "0x120",
    }
    check = {"expr": "ALERTS", "eval_time": "119m", "exp_samples": []}
    tests = [_test(series, promql_expr_test=[check])]
    document = {"rule_files": [*map(str, FILES)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    _promtool(prometheus, "test", "rules", path)


def test_namesakes_in_two_namespaces_are_told_apart_and_a_deleted_one_is_forgotten(
    prometheus: Tools, tmp_path: Path
) -> None:
    """A rollout of one excuses nothing in the other; an alert ends with its StreamApp."""
    series = {}
    for namespace in ("shop", "bank"):
        labels = f'namespace="{namespace}",name="delays",application_id="delays"'
        series[f'millpond_streamapp_workers{{{labels},state="wanted"}}'] = "3x20 stale"
        series[f'millpond_streamapp_workers{{{labels},state="ready"}}'] = "2x20 stale"
    rollout = 'namespace="bank",name="delays",application_id="delays",type="Progressing",status="True"'
    series[f'millpond_streamapp_condition{{{rollout},reason="RollingOut"}}'] = "1x20 stale"
    names = 'namespace="shop",name="delays",application_id="delays"'
    firing = f'ALERTS{{alertname="WorkerDown",alertstate="firing",part_of="millpond",severity="warning",{names}}}'
    down = 'ALERTS{alertname="WorkerDown"}'
    checks = [
        {"expr": down, "eval_time": "15m", "exp_samples": [{"labels": firing, "value": 1}]},
        {"expr": down, "eval_time": "22m", "exp_samples": []},
    ]
    _run(prometheus, tmp_path, "WorkerDown", [_test(series, promql_expr_test=checks)])


def test_release_without_a_leader_is_named_while_another_one_leads(prometheus: Tools, tmp_path: Path) -> None:
    """Each release of the chart has its own StreamApps, which the operator of the other one does not serve."""
    series = {
        'millpond_operator_leading{namespace="one",instance="a",pod="a"}': "1x60",
        'millpond_operator_leading{namespace="two",instance="b",pod="b"}': "1x5 0x20 1x35",
    }
    down = 'ALERTS{alertname="OperatorDown",alertstate="firing"}'
    firing = (
        'ALERTS{alertname="OperatorDown",alertstate="firing",namespace="two",part_of="millpond",severity="critical"}'
    )
    checks = [
        {"expr": down, "eval_time": "20m", "exp_samples": [{"labels": firing, "value": 1}]},
        {"expr": down, "eval_time": "30m", "exp_samples": []},
    ]
    _run(prometheus, tmp_path, "OperatorDown", [_test(series, promql_expr_test=checks)])
