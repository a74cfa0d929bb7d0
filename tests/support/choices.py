"""What a run has chosen by its seed: tests, generated cases, plans of faults. Two runs are compared by its digest.

Every process of a run appends lines to a file of its own in the directory that `TEST_CHOICES` names; without the
variable nothing is recorded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = ("DIRECTORY", "digest", "read", "record")

DIRECTORY = "TEST_CHOICES"
"""The name of the variable. It does not begin with `MILLPOND_`: millpond refuses variables of its own that are no
settings."""


def record(what: str, *content: object) -> None:
    """Record a choice.

    Args:
        what: the kind of choice, and the test that makes it.
        content: what was chosen; only its hash is kept.
    """
    directory = os.environ.get(DIRECTORY)
    if directory is None:
        return
    line = what.replace("\n", " ")
    if content:
        line += f" {hashlib.sha256(repr(content).encode()).hexdigest()[:16]}"
    with (Path(directory) / f"{os.getpid()}.txt").open("a") as file:
        file.write(f"{line}\n")


def read(directory: Path) -> list[str]:
    """Return all choices of a run, in order, each once: several processes collect the same tests."""
    return sorted({line for file in directory.glob("*.txt") for line in file.read_text().splitlines()})


def digest(lines: Iterable[str]) -> str:
    """Return a short hash of choices."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
