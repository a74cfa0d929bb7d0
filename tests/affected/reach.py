"""How many plain tests a change chooses, by the record of the last run: `python -m tests.affected.reach`.

One row is for changes inside one function, the other for changes of a module outside of its functions. The columns are
the parts of all functions and modules of worker and operator that choose at most so many cases.
"""

from __future__ import annotations

import sys
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from tests.affected.blocks import MODULE
from tests.affected.record import Record, file_of, load
from tests.affected.session import RECORD

_OWN = ("worker/", "operator/")
_PARTS = (10, 25, 50, 75, 90, 100)


def chosen_by(record: Record) -> dict[tuple[str, str], int]:
    """Return how many cases a change of each block of worker and operator chooses."""
    tests: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    of_file: defaultdict[str, list[str]] = defaultdict(list)
    for name, test in record.tests.items():
        of_file[file_of(name)].append(name)
        for path, block, _ in test.needs:
            tests[path, block].add(name)
    for file, needs in record.files.items():
        for path, block, _ in needs:
            tests[path, block].update(of_file[file])
    return {
        block: sum(len(record.tests[name].cases) for name in names)
        for block, names in tests.items()
        if block[0].startswith(_OWN)
    }


def main() -> int:
    """Print the table; return 1 without a record."""
    console = Console(soft_wrap=True, highlight=False)
    record = load(RECORD)
    if record is None:
        console.print("There is no record yet: run `make check` first.")
        return 1
    chosen = chosen_by(record)
    of_all = sum(len(test.cases) for test in record.tests.values())
    table = Table("change", "blocks", *(f"{part} %" for part in _PARTS), title=f"chosen tests, of {of_all}")
    rows = {
        "inside a function": [cases for (_, name), cases in chosen.items() if not name.startswith("<")],
        "of a module outside of functions": [cases for (_, name), cases in chosen.items() if name == MODULE],
    }
    for what, cases in rows.items():
        cases.sort()
        table.add_row(what, str(len(cases)), *(str(cases[(len(cases) - 1) * part // 100]) for part in _PARTS))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
