"""How long `make check` takes after a change of one module: `python -m tests.affected.times`.

In a copy of the tree, a function of each of ten modules gets one more statement, one module after the other, and `make
check` runs. Before that, `make check` runs without a change until nothing is left to do. The modules and functions are
drawn by a seed from all that plain tests execute.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.affected.record import Record, load, save
from tests.affected.session import RECORD, ROOT

_CACHES = (".mypy_cache", ".ruff_cache", "build/affected", "build/import-linter")
_CHOSEN = re.compile(r"^plain tests: (?:(\d+) of (\d+)|all)", re.MULTILINE)
_OWN = ("worker/", "operator/")
_FAILED = "failed"
#: A statement that does nothing, and that no check rejects.
_STATEMENT = "assert __name__"


def main() -> int:
    """Run; the exit status is 1 if a run of `make check` fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.affected.times", description=__doc__)
    parser.add_argument("--modules", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of modules and functions")
    given = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    title = f"make check after a change of one module; {os.cpu_count()} processors, Python {sys.version.split()[0]}"
    columns = ("module", "function", "chosen", "of all", "seconds", "CPU seconds", "load", "result")
    table = Table(*columns, title=title)
    results = []
    with tempfile.TemporaryDirectory(prefix="millpond-inner-loop-") as name:
        root = Path(name)
        _copy(root)
        for what in ("first run", "no change"):  # the first one fills the caches
            table.add_row(what, "", *_check(root))
        record = load(root / RECORD.relative_to(ROOT))
        if record is None:
            console.print("There is no record of tests: `make check` does not get that far.")
            return 1
        for path, function in _drawn(record, root, given.modules, given.seed):
            before = (root / path).read_text()
            (root / path).write_text(_changed(before, function) or before)
            cells = _check(root)
            results.append(cells[-1])
            table.add_row(path, function, *cells)
            console.print(f"{path} {function}: {', '.join(cells)}", markup=False)
            (root / path).write_text(before)
            save(record, root / RECORD.relative_to(ROOT))
    console.print(table)
    return int(_FAILED in results)


def _copy(root: Path) -> None:
    """Copy all files that git has, or would add, and the caches of the checks."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for path in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / path).is_file():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, root / path, follow_symlinks=False)
    for path in _CACHES:
        if (ROOT / path).is_dir():
            shutil.copytree(ROOT / path, root / path, dirs_exist_ok=True)
    (root / ".venv").symlink_to(ROOT / ".venv")
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)


def _check(root: Path) -> tuple[str, ...]:
    """Run `make check`; return the cells of the table from how many tests it chose to its result."""
    began, computed = time.monotonic(), _computed()
    done = subprocess.run(
        ["make", "--no-print-directory", "check"], cwd=root, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-2000:])
    found = _CHOSEN.search(done.stdout)
    chosen, of_all = (found.group(1) or "all", found.group(2) or "all") if found else ("?", "?")
    result = _FAILED if done.returncode else "passed"
    return chosen, of_all, f"{seconds:.1f}", f"{_computed() - computed:.1f}", f"{os.getloadavg()[0]:.1f}", result


def _computed() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _drawn(record: Record, root: Path, number: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield modules and one function of each that a plain test executes and that can be changed."""
    functions: dict[str, set[str]] = {}
    for test in record.tests.values():
        for path, name, _ in test.needs:
            if path.startswith(_OWN) and not name.startswith("<"):
                functions.setdefault(path, set()).add(name)
    draw = random.Random(seed)
    paths = sorted(functions)
    draw.shuffle(paths)
    for path in paths:
        text = (root / path).read_text()
        possible = [each for each in sorted(functions[path]) if _changed(text, each)]
        if possible and number > 0:
            number -= 1
            yield path, draw.choice(possible)


def _changed(text: str, function: str) -> str | None:
    """Return the text of a module with one more statement in a function; None if it has no place for one."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.rpartition(".")[2]:
            last = node.body[-1]
            lines = text.splitlines(keepends=True)
            if last.lineno > node.lineno and lines[last.lineno - 1][: last.col_offset].isspace():
                lines.insert(last.lineno - 1, f"{' ' * last.col_offset}{_STATEMENT}\n")
                return "".join(lines)
    return None


if __name__ == "__main__":
    sys.exit(main())
