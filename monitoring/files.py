"""The written files: dashboards in JSON, rules in YAML, and the tables of the documentation."""

from __future__ import annotations

from pathlib import Path

import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from monitoring import dashboards, rules
from monitoring.documentation import metrics_page, with_tables

__all__ = ("FOLDER", "contents", "stale", "write")

FOLDER = Path("helm/millpond/files")
_ROOT = Path(__file__).parents[1]
_PAGE = Path("docs/monitoring.md")
_METRICS = Path("docs/metrics.md")
_NOTE = "# Written by `make dashboards` from monitoring/rules. Do not edit.\n"


class _Dumper(yaml.SafeDumper):
    """Writes sequences with an indentation, as people do."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of PyYAML
        super().increase_indent(flow, indentless=False)


def contents() -> dict[Path, str]:
    """Return the text of each file, by its path from the project's root."""
    found = {
        FOLDER / "dashboards" / f"{board.uid}.json": JSONEncoder(sort_keys=True, indent=2).encode(board) + "\n"
        for board in dashboards.all_dashboards()
    }
    for name, groups in rules.FILES.items():
        document = {"groups": [each.as_object() for each in groups]}
        text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
        found[FOLDER / "rules" / name] = _NOTE + text
    found[_PAGE] = with_tables((_ROOT / _PAGE).read_text())
    found[_METRICS] = metrics_page()
    return found


def stale() -> list[Path]:
    """Return the paths of files that are missing, outdated, or made by nothing any more."""
    wanted = contents()
    there = {page for page in (_PAGE, _METRICS) if (_ROOT / page).exists()}
    for pattern in ("dashboards/*.json", "rules/*.yaml"):
        there |= {each.relative_to(_ROOT) for each in (_ROOT / FOLDER).glob(pattern)}
    old = [path for path, text in wanted.items() if path not in there or (_ROOT / path).read_text() != text]
    return sorted([*old, *(there - set(wanted))])


def write() -> None:
    """Write all files, and delete those that nothing makes any more."""
    wanted = contents()
    for path in stale():
        if path not in wanted:
            (_ROOT / path).unlink()
            continue
        (_ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (_ROOT / path).write_text(wanted[path])
