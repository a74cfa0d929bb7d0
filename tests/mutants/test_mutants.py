"""The list of mutants fits the code: each can be applied, and the tests that must catch it exist."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.mutants import AREAS, ROOT, Mutant, load

MUTANTS = load()
LEAST = 14
"""The least number of mutants in each area."""


@functools.cache
def _tests_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.add(node.targets[0].id)
    return found


def test_every_area_has_enough_mutants():
    """Ids are unique, and no area is left out."""
    assert len({each.id for each in MUTANTS}) == len(MUTANTS) >= 64
    count = Counter(each.area for each in MUTANTS)
    assert all(count[area] >= LEAST for area in AREAS), count


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each.id)
def test_mutant_fits_the_code_and_names_existing_tests(mutant: Mutant):
    """Its old text occurs exactly once in its file, the new one differs and is Python, and each test exists."""
    assert mutant.occurrences() == 1, (
        f"{mutant.file} has the text that tests/mutants/{mutant.area}.toml quotes {mutant.occurrences()} times, not "
        f"once; adapt the quotation:\n{mutant.old}"
    )
    assert mutant.new != mutant.old
    assert mutant.harm.endswith(".")
    ast.parse((ROOT / mutant.file).read_text().replace(mutant.old, mutant.new))
    assert mutant.tests, "some test must catch it"
    for node in mutant.tests:
        file, _, name = node.partition("::")
        assert (ROOT / file).is_file(), f"{node}: there is no such file"
        assert name.partition("[")[0] in _tests_in(ROOT / file), f"{node}: there is no such test"
