"""Evidence of a failed test: its seed, and what its own processes and the shared ones that it used wrote meanwhile."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import seeds

__all__ = ("DIRECTORY", "VARIABLE", "begin", "collect", "follow", "keep")

VARIABLE = "TEST_EVIDENCE"
"""The name of the variable that names another directory."""
DIRECTORY = Path(os.environ.get(VARIABLE) or Path(__file__).parents[2] / "build" / "failed")
"""One directory for each failed test."""

_SUFFIXES = frozenset({".log", ".txt", ".json", ".jsonl", ".yaml", ".toml"})
_SEGMENT = re.compile(r"\d{20}\.log")
"""Records of a broker."""
_MOST_BYTES = 2_000_000
"""The kept size of one file; its end is kept."""
_MOST_FILES = 200
_COARSE_S = 0.1
"""Times of files come from a coarser clock."""


@dataclass
class _Test:
    """What this process knows of the test that runs: when it began, and the sizes of logs at that time."""

    began: float = 0.0
    sizes: dict[Path, int] = field(default_factory=dict)


_test = _Test()
_followed: dict[Path, str] = {}
"""Logs of programs that outlive a test -> the fixture that starts the program."""
_kept: dict[Path, bytes] = {}
"""Logs of the test's programs whose directories are gone -> their ends."""


def follow(log: Path, fixture: str = "") -> None:
    """Note a log that grows through several tests: of each test, its own part is evidence.

    Args:
        log: the log.
        fixture: the fixture with which a test uses the program; empty if all tests do that run while the log exists.
    """
    _followed[log] = fixture


def keep(log: Path) -> None:
    """Keep the end of a log that is going to be deleted, until the next test begins."""
    if (content := _end(log, 0)) is not None:
        _kept[log] = content


def begin(run: Path) -> None:
    """Note that a test begins.

    Args:
        run: the directory that all processes of the run share.
    """
    _kept.clear()
    for log in [each for each in _followed if not each.exists()]:
        del _followed[log]
    _test.sizes = {log: log.stat().st_size for log in (*_followed, *_shared_logs(run)) if log.exists()}
    _test.began = time.time() - _COARSE_S


def collect(name: str, seed: int, used: Collection[str], own: Path, run: Path) -> Path:
    """Copy logs and other evidence to a directory that is kept after the test run.

    Args:
        name: the test's node id.
        seed: the seed of the run.
        used: names of the fixtures and the needs of the test.
        own: the directory of all temporary directories of this process; what was not written during the test is of
            other tests.
        run: the directory that all processes of the run share.

    Returns:
        The directory.
    """
    directory = DIRECTORY / re.sub(r"\W+", "-", name).strip("-")[-150:]
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "seed.txt").write_text(f"pytest --seed {seed} '{seeds.plain(name)}'\n")
    for file in _written_meanwhile(own):
        _copy(file, directory / "own" / file.relative_to(own))
    for log, content in _kept.items():
        _write(directory / "own" / log.parent.name / log.name, content)
    for log, fixture in _followed.items():
        if not log.is_relative_to(own) and (not fixture or fixture in used):
            _copy(log, directory / (fixture or "own") / log.parent.name / log.name)
    if "broker" in used:
        for log in _shared_logs(run):
            _copy(log, directory / "broker" / log.name)
    for need in used:  # how what it needs was made
        _copy(run / f"{need}.log", directory / "preparation" / f"{need}.log")
    return directory


def _shared_logs(run: Path) -> list[Path]:
    """Return the logs of the broker that all processes of a run share."""
    try:
        return [Path(line) for line in (run / "broker.shared-log").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _written_meanwhile(root: Path) -> Iterator[Path]:
    found = 0
    for directory, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(directory) / name
            if _SEGMENT.fullmatch(name) or (path.suffix not in _SUFFIXES and not name.startswith("said-")):
                continue
            try:
                if path.stat().st_mtime < _test.began:
                    continue
            except OSError:
                continue
            found += 1
            if found > _MOST_FILES:
                return
            yield path


def _copy(source: Path, target: Path) -> None:
    """Copy what was written during the test, if anything was."""
    content = _end(source, _test.sizes.get(source, 0))
    if content:
        _write(target, content)


def _end(log: Path, start: int) -> bytes | None:
    """Return a file from an offset on, or its end; None if it was deleted when its process ended."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - _MOST_BYTES))
            return file.read()
    except OSError:
        return None


def _write(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
