"""Count test functions and assertions: `python -m tests.support.inventory b009577 HEAD` compares two revisions."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter

from rich.console import Console
from rich.table import Table

__all__ = ("count",)


def count(source: str) -> Counter[str]:
    """Return the numbers of test functions and assertions in a module; `pytest.raises` counts as an assertion."""
    found: Counter[str] = Counter()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found["functions"] += 1
        elif isinstance(node, ast.Assert) or (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "raises"
        ):
            found["assertions"] += 1
    return found


def _of_revision(revision: str) -> dict[str, Counter[str]]:
    archive = subprocess.run(["git", "archive", revision, "tests"], capture_output=True, check=True).stdout
    folders: dict[str, Counter[str]] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            file = files.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                folder = "/".join(member.name.split("/")[:2])
                folders.setdefault(folder, Counter()).update(count(file.read().decode()))
    return folders


def main() -> None:
    """Print a table with one row per folder and columns for each revision."""
    revisions = sys.argv[1:] or ["HEAD"]
    counts = {revision: _of_revision(revision) for revision in revisions}
    table = Table("folder", *(f"{what}, {revision}" for revision in revisions for what in ("functions", "assertions")))
    for folder in sorted({folder for each in counts.values() for folder in each}):
        row = [counts[revision].get(folder, Counter()) for revision in revisions]
        table.add_row(folder, *(str(each[what]) for each in row for what in ("functions", "assertions")))
    totals = [sum(counts[revision].values(), Counter[str]()) for revision in revisions]
    table.add_row("all", *(str(each[what]) for each in totals for what in ("functions", "assertions")))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
