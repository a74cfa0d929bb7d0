"""The list of mutants: faults in ownership, assignment, commit and rollout, and faults that were found by chance.

Each has the tests that must catch it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ("AREAS", "ROOT", "Mutant", "load")

ROOT = Path(__file__).parents[2]
AREAS = ("ownership", "assignment", "commit", "rollout", "found")


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Attributes:
        id: unique name.
        area: one of `AREAS`, the name of the file that lists it.
        file: the source file, relative to the root.
        old: text that occurs exactly once in the file.
        new: what takes its place.
        harm: what a user would suffer, one sentence.
        tests: node ids of the tests that must catch it, the cheapest first.
        broker: whether the tests need a Kafka broker.
    """

    id: str
    area: str
    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]
    broker: bool = False

    def occurrences(self, root: Path = ROOT) -> int:
        """Return how often the old text occurs in the file; 0 when there is no such file."""
        path = root / self.file
        return path.read_text().count(self.old) if path.is_file() else 0

    def apply(self, root: Path) -> None:
        """Put the fault into the tree at `root`, which must be a copy."""
        path = root / self.file
        path.write_text(path.read_text().replace(self.old, self.new, 1))


def load() -> list[Mutant]:
    """Return all mutants, by area."""
    return [
        Mutant(**{**entry, "area": area, "tests": tuple(entry["tests"])})
        for area in AREAS
        for entry in tomllib.loads((Path(__file__).parent / f"{area}.toml").read_text()).get("mutant", ())
    ]
