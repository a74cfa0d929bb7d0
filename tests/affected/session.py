"""Where the record is, and what the command and the pytest processes that it starts tell each other in a folder."""

from __future__ import annotations

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.affected.record import Choice, Run
from tests.affected.tree import Tree

__all__ = ("CACHE", "FOLDER_VARIABLE", "RECORD", "ROOT", "Given", "collected", "keep")

ROOT = Path(__file__).parents[2]
_VERSION = ".".join(map(str, sys.version_info[:2]))
RECORD = ROOT / "build" / "affected" / f"record-{_VERSION}.json"
"""The record of the last run with this version of Python."""
CACHE = RECORD.with_name(f"sources-{_VERSION}.json")
"""What was parsed."""
FOLDER_VARIABLE = "TESTS_AFFECTED"
"""The variable of the environment with the folder."""
_GIVEN = "given.pickle"


@dataclass(frozen=True)
class Given:
    """What the command tells all processes of a run.

    Attributes:
        tree: the files of the repository.
        choice: the tests to run.
        record: whether to record what they execute.
    """

    tree: Tree
    choice: Choice
    record: bool

    def write(self, folder: Path) -> None:
        """Write it for the processes of a run."""
        (folder / _GIVEN).write_bytes(pickle.dumps(self))

    @staticmethod
    def read(folder: Path) -> Given:
        """Read what the command wrote."""
        given: Given = pickle.loads((folder / _GIVEN).read_bytes())
        return given


def keep(run: Run, folder: Path) -> None:
    """Write what this process measured."""
    (folder / f"run-{os.getpid()}.pickle").write_bytes(pickle.dumps(run))


def collected(folder: Path) -> Run:
    """Return what all processes of a run measured."""
    total = Run()
    for path in sorted(folder.glob("run-*.pickle")):
        total.add(pickle.loads(path.read_bytes()))
    return total
