"""The tables of the documentation: alerts and recording rules, and the page of metrics."""

from __future__ import annotations

import re

from monitoring import inventory, rules
from monitoring.rules.model import duration

__all__ = ("metrics_page", "with_tables")

_METRICS = """# Metrics

<!-- Written by `make dashboards`; edit the help texts in the code, and the queries in monitoring/metric_queries.py. -->

Every metric with its meaning, and a query in PromQL that works as it is. [Monitoring](monitoring.md) has dashboards and alerts that use them.

## Metrics of workers

All of them have the labels `application_id` and `worker`; those of tasks have `task`, those of inputs `topic`, those of stores `store`, those of
nodes `node`. Metrics of nodes, and of the flushes of stores, need `metrics.recording.level = "DEBUG"`.

Counters begin with 0 in each process, so a restart, or `kill -9`, sets them back. `increase()` and `rate()` of Prometheus go on over that. So a total is
`sum by (application_id) (increase(millpond_task_dropped_records_total[1d]))` over the time that you ask for, and not the value of the metric. What a process counted
after its last scrape is in no total; the log has it. Counters of a task (`task` is one of their labels) end at a worker when the task moves, and begin with 0 at the next one; so does
the column `dropped` of `millpond dev`.

{workers}

## Metrics of the operator

Names without `millpond_` are those of controller-runtime, client-go and Prometheus' clients, so dashboards for controllers work unchanged. Those of StreamApps
have the labels `namespace`, `name` and `application_id`, and disappear with the StreamApp.

{operator}
"""


def with_tables(page: str) -> str:
    """Return the page with the tables between its comments written anew.

    Raises:
        LookupError: a comment is missing.
    """
    tables = {
        "alerts": _alerts(),
        "recordings": _recordings(),
    }
    for name, table in tables.items():
        pattern = rf"(?<=<!-- {name}: written by `make dashboards` -->\n).*?(?=<!-- end of {name} -->)"
        block = f"\n{table}\n\n".replace("\\", r"\\")
        page, found = re.subn(pattern, block, page, flags=re.DOTALL)
        if found != 1:
            raise LookupError(f"docs/monitoring.md has no comment '{name}': write it back.")
    return page


def metrics_page() -> str:
    """Return the page of all metrics."""
    return _METRICS.format(
        workers=inventory.entries(inventory.worker_metrics()), operator=inventory.entries(inventory.operator_metrics())
    )


def _alerts() -> str:
    lines = ["| alert | severity | for | fires when |", "|---|---|---|---|"]
    for each in rules.alerts():
        rule = each.as_object()
        first = rule["annotations"]["description"].split(". ")[0].rstrip(".:")
        lines.append(f"| [{each.name}](runbooks/{each.name}.md) | {each.severity} | {duration(each.hold)} | {first} |")
    return "\n".join(lines)


def _recordings() -> str:
    lines = ["| series | expression |", "|---|---|"]
    for groups in rules.FILES.values():
        for group in groups:
            for rule in group.rules:
                if isinstance(rule, rules.Recording):
                    made = rule.as_object()
                    lines.append(f"| `{made['record']}` | `{made['expr']}` |")
    return "\n".join(lines)
