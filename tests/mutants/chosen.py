"""Whether `make check` runs the tests that catch a mutant: `python -m tests.mutants --chosen`.

Each mutant is put into the files in memory, and the record of the last `make check` says which tests that change
chooses. A mutant whose tests all need more than Python, or are cases that `make check` did not draw, is none that
the plain tests catch.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.affected.record import Choice, Record, choose, load
from tests.affected.session import CACHE, RECORD
from tests.affected.tree import Tree, read
from tests.mutants.mutants import ROOT, Mutant

__all__ = ("catching", "shown")


def catching(mutant: Mutant, record: Record, tree: Tree) -> tuple[set[str], set[str], int]:
    """Return the plain tests that catch a mutant, those of them that it chooses, and how many cases it chooses."""
    text = (ROOT / mutant.file).read_text().replace(mutant.old, mutant.new, 1)
    choice = choose(record, tree.changed(mutant.file, text.encode()))
    plain = {test for test in mutant.tests if _has_run(test, record)}
    cases = sum(len(test.cases) for name, test in record.tests.items() if choice.has(name))
    return plain, {test for test in plain if choice.has(test.partition("[")[0])}, cases


def _has_run(test: str, record: Record) -> bool:
    """Return whether a test was among those of the last run, which has only some cases of tests with many."""
    name, _, case = test.partition("[")
    return name in record.tests and (not case or case.removesuffix("]") in record.tests[name].cases)


def shown(mutants: Sequence[Mutant]) -> int:
    """Print a line for each mutant; return 1 if a plain test that catches one is not chosen."""
    record, tree = load(RECORD), read(ROOT, CACHE)
    if record is None or choose(record, tree) != Choice():
        print("`make check` has tests left to run, which it would run with any mutant: run it first, until all pass.")
        return 1
    of_all = sum(len(test.cases) for test in record.tests.values())
    missed = none = 0
    for mutant in mutants:
        plain, chosen, cases = catching(mutant, record, tree)
        verdict = "no plain test" if not plain else "chosen" if plain == chosen else "NOT CHOSEN"
        missed += verdict == "NOT CHOSEN"
        none += not plain
        left = f"  {', '.join(sorted(plain - chosen))}" if plain != chosen else ""
        print(f"{mutant.area:10}  {mutant.id:45}  {verdict:13}  {cases:5} of {of_all} tests{left}", flush=True)
    caught = len(mutants) - none
    print(f"\n{caught - missed} of {caught} mutants that plain tests catch choose these; {none} have no plain test")
    return 1 if missed else 0
