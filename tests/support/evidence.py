"""Evidence of a failed test: the logs of its processes, of the broker and of the API server, and its seed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.support import seeds

__all__ = ("DIRECTORY", "VARIABLE", "collect")

VARIABLE = "TEST_EVIDENCE"
"""The name of the variable that names another directory."""
DIRECTORY = Path(os.environ.get(VARIABLE) or Path(__file__).parents[2] / "build" / "failed")
"""One directory for each failed test."""

_SUFFIXES = frozenset({".log", ".txt", ".json", ".yaml", ".toml"})
_MOST_BYTES = 2_000_000
"""The kept size of one file; its end is kept."""
_MOST_FILES = 200


def collect(name: str, seed: int, own: Path | None, run: Path) -> Path:
    """Copy logs and other evidence to a directory that is kept after the test run.

    Args:
        name: the test's node id.
        seed: the seed of the run.
        own: the test's temporary directory, if it has one.
        run: the directory that all processes of the run share.

    Returns:
        The directory.
    """
    directory = DIRECTORY / re.sub(r"\W+", "-", name).strip("-")[-150:]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "seed.txt").write_text(f"pytest --seed {seed} '{seeds.plain(name)}'\n")
    for root in (run,) if own is None else (own, run):
        for file in _worth_keeping(root):
            _copy_end(file, directory / root.name / file.relative_to(root))
    for link in run.glob("*.shared-log"):
        for file in map(Path, link.read_text().splitlines()):
            _copy_end(file, directory / link.stem / file.name)
    return directory


def _worth_keeping(root: Path) -> Iterator[Path]:
    found = 0
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            if Path(name).suffix in _SUFFIXES or name.startswith("said-"):
                found += 1
                if found > _MOST_FILES:
                    return
                yield Path(directory) / name


def _copy_end(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_BYTES))
            content = file.read()
    except OSError:
        return  # deleted when its process ended
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
