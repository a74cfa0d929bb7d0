"""Branch coverage per package, as a table: read from what `make coverage` measured.

python -m tests.packaging.coverage_table
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePath
from typing import Any

__all__ = ("Row", "main", "per_package")


@dataclass(slots=True)
class Row:
    """What coverage.py counted in one package."""

    num_statements: int = 0
    covered_lines: int = 0
    num_branches: int = 0
    covered_branches: int = 0

    def add(self, summary: Mapping[str, int]) -> None:
        """Add the counts of one file."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + summary[field.name])


def per_package(files: Mapping[str, Mapping[str, int]]) -> dict[str, Row]:
    """Return the counts of each package, by its dotted name, and of everything as `all`.

    Args:
        files: the summary of each file, by its path in the repository: `worker/millpond/state/rows.py`.
    """
    rows: dict[str, Row] = {}
    for path, summary in sorted(files.items()):
        _, root, *inside = PurePath(path).parts
        deep = 2 if inside[:1] in (["runtime"], ["controllers"], ["cli"]) else 1
        rooms = inside[:-1][:deep]
        rows.setdefault(".".join((root, *rooms)), Row()).add(summary)
    total = Row()
    for summary in files.values():
        total.add(summary)
    return {**dict(sorted(rows.items())), "all": total}


def _share(covered: int, counted: int) -> str:
    return f"{100 * covered / counted:7.1f} %" if counted else "        -"


def _print(rows: Iterable[tuple[str, Row]]) -> None:
    print(f"{'package':50}  lines    covered  branches    covered")
    for name, row in rows:
        print(
            f"{name:50}  {row.num_statements:5}  {_share(row.covered_lines, row.num_statements)}"
            f"  {row.num_branches:8}  {_share(row.covered_branches, row.num_branches)}"
        )


def _measured() -> dict[str, Any]:
    import coverage

    data = coverage.Coverage()
    data.load()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "coverage.json"
        data.json_report(outfile=str(file))
        return {path: found["summary"] for path, found in json.loads(file.read_text())["files"].items()}


def main() -> int:
    """Print the table."""
    _print(per_package(_measured()).items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
