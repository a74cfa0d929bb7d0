"""The tables of `docs/monitoring.md`: alerts, recording rules, metrics."""

from __future__ import annotations

import re

from monitoring import inventory, rules
from monitoring.rules.model import duration

__all__ = ("with_tables",)


def with_tables(page: str) -> str:
    """Return the page with the tables between its comments written anew.

    Raises:
        LookupError: a comment is missing.
    """
    tables = {
        "alerts": _alerts(),
        "recordings": _recordings(),
        "worker metrics": inventory.table(inventory.worker_metrics()),
        "operator metrics": inventory.table(inventory.operator_metrics()),
    }
    for name, table in tables.items():
        pattern = rf"(?<=<!-- {name}: written by `make dashboards` -->\n).*?(?=<!-- end of {name} -->)"
        block = f"\n{table}\n\n".replace("\\", r"\\")
        page, found = re.subn(pattern, block, page, flags=re.DOTALL)
        if found != 1:
            raise LookupError(f"docs/monitoring.md has no comment '{name}': write it back.")
    return page


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
