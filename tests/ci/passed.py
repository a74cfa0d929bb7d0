"""The trees that passed all checks on this machine: one line each in `ci-passed` of the cache folder."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from millpond.broker.jars import cache_directory

__all__ = ("Passed", "add", "file", "passed")


@dataclass(frozen=True)
class Passed:
    """A run that passed.

    Attributes:
        tree: the id of its tree.
        choices: the digest of what it chose by the seed of the tree.
        seconds: how long it took.
        at: when it ended.
        without: the phases that it had to leave out.
    """

    tree: str
    choices: str
    seconds: int
    at: datetime
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        without = f" without {','.join(self.without)}" if self.without else ""
        return f"{self.at:%Y-%m-%dT%H:%M:%SZ} tree {self.tree} choices {self.choices} {self.seconds} s{without}"

    @classmethod
    def parsed(cls, line: str) -> Passed:
        """Return the run that a line tells."""
        at, _, tree, _, choices, seconds, _, *rest = line.split()
        without = tuple(rest[1].split(",")) if rest else ()
        return cls(tree, choices, int(seconds), datetime.fromisoformat(at).astimezone(UTC), without)


def file() -> Path:
    """Return the path of the file."""
    return cache_directory() / "ci-passed"


def add(run: Passed) -> None:
    """Add a run."""
    file().parent.mkdir(parents=True, exist_ok=True)
    with file().open("a") as lines:
        lines.write(f"{run}\n")


def passed(tree: str) -> list[Passed]:
    """Return the runs of a tree that passed, the oldest first."""
    lines = file().read_text().splitlines() if file().exists() else []
    return [each for each in map(Passed.parsed, lines) if each.tree == tree]
