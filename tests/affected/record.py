"""What each test executed when it last ran, and the tests that a change can affect, by that.

Tests are chosen as functions, not as single cases: the cases of one run may be others than those of the next.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.affected.blocks import MODULE, TEXT
from tests.affected.tree import LISTING, Tree

__all__ = ("Block", "Choice", "Record", "Run", "Test", "choose", "file_of", "load", "merged", "save")

Block = tuple[str, str]
"""A file and the name of one of its blocks."""
Known = frozenset[tuple[str, str, str | None]]
"""Blocks with the digests that they had."""
_TEST_FILE = re.compile(r"(?:tests|examples)/(?:.*/)?test_[^/]*\.py")
"""The files that pytest collects: `testpaths` in pyproject.toml."""


@dataclass(frozen=True)
class Test:
    """One test function when it last ran.

    Attributes:
        needs: the blocks that it executed.
        cases: the ids of the cases that ran; "" is that of a test without cases.
        seconds: how long these took.
        failed: whether one of them failed.
    """

    needs: Known
    cases: frozenset[str] = frozenset({""})
    seconds: float = 0.0
    failed: bool = False


@dataclass(frozen=True)
class Record:
    """All tests when they last ran.

    Attributes:
        data: the digest of each file that is not Python.
        files: what all tests of a file need: what is executed when the file is imported.
        tests: each test function, by its node id.
        seed: the seed of all runs until everything runs again. With another one, tests would have other cases, which
            may execute what those of the record did not.
    """

    data: Mapping[str, str]
    files: Mapping[str, Known]
    tests: Mapping[str, Test]
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    """The tests that a change can have broken.

    Attributes:
        everything: why all are chosen; "" if only some are.
        files: test files that are chosen as a whole.
        tests: other test functions that are chosen.
        changed: the changed blocks that at least one test needs.
    """

    everything: str = ""
    files: frozenset[str] = frozenset()
    tests: frozenset[str] = frozenset()
    changed: tuple[str, ...] = ()

    def has(self, test: str) -> bool:
        """Return whether a test function is chosen."""
        return bool(self.everything) or test in self.tests or file_of(test) in self.files


@dataclass
class Run:
    """What one pytest process measured.

    Attributes:
        present: the test functions of each test file that was collected, chosen or not.
        executed: the blocks that each test function executed.
        imported: the blocks that were executed for a whole test file: by its import, or by its wider fixtures.
        once: the blocks that were executed once for all tests that import a file: by its import, its cached functions,
            its fixtures of the session.
        read: the Python files that are read as text: by a test function, or by a file for all tests that import it.
        cases: the ids of the cases of each test function that ran.
        seconds: their time.
        failed: the test functions with a failure.
    """

    present: dict[str, list[str]] = field(default_factory=dict)
    executed: dict[str, set[Block]] = field(default_factory=lambda: defaultdict(set))
    imported: dict[str, set[Block]] = field(default_factory=lambda: defaultdict(set))
    once: dict[str, set[Block]] = field(default_factory=lambda: defaultdict(set))
    read: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    cases: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    failed: set[str] = field(default_factory=set)

    def add(self, other: Run) -> None:
        """Add what another process of the same run measured."""
        self.present.update(other.present)
        self.failed |= other.failed
        for mine, others in (
            (self.executed, other.executed), (self.imported, other.imported), (self.once, other.once),
            (self.read, other.read),
        ):  # fmt: skip
            for key, found in others.items():
                mine[key] |= found
        for test, cases in other.cases.items():
            self.cases[test] |= cases
            self.seconds[test] += other.seconds[test]


def file_of(test: str) -> str:
    """Return the file of a test function."""
    return test.partition("::")[0]


def choose(record: Record | None, tree: Tree) -> Choice:
    """Return the tests that can have another result than when they last passed."""
    if record is None:
        return Choice(everything="there is no record yet")
    data = sorted(path for path in {*record.data, *tree.data} if record.data.get(path) != tree.data.get(path))
    if data:
        return Choice(everything=f"{data[0]} has changed" + (f", and {len(data) - 1} others" if data[1:] else ""))
    same: dict[tuple[str, str, str | None], bool] = {}
    changed: set[str] = set()

    def affected(needs: Known) -> bool:
        found = False
        for need in needs:
            if need not in same:
                path, name, known = need
                same[need] = tree.block(path, name) == known
            if not same[need]:
                changed.add(f"{need[0]} {need[1]}")
                found = True
        return found

    new = {path for path in tree.sources if _TEST_FILE.fullmatch(path) and path not in record.files}
    known = {path for needs in record.files.values() for path, _, _ in needs}
    for folder in (path.removesuffix("conftest.py") for path in tree.sources.keys() - known):
        new |= {path for path in record.files if folder.endswith("/") and path.startswith(folder)}
    files = {path for path, needs in record.files.items() if path in tree.sources and affected(needs)}
    tests = {
        name
        for name, test in record.tests.items()
        if file_of(name) in tree.sources and (affected(test.needs) or test.failed)
    }
    return Choice("", frozenset(files | new), frozenset(tests), tuple(sorted(changed)))


def merged(record: Record | None, tree: Tree, run: Run, choice: Choice, seed: int = 0) -> Record:
    """Return the record after a run.

    Args:
        record: the record before it.
        tree: the files as they were when the tests were chosen.
        run: what all processes measured.
        choice: the tests that the run was to run. Those that did not run stay as they were, and so are chosen again.
        seed: the seed of the run.
    """
    files = {path: needs for path, needs in (record.files if record else {}).items() if path in tree.sources}
    tests = {name: test for name, test in (record.tests if record else {}).items() if file_of(name) in tree.sources}
    for name, cases in run.cases.items():
        known = tests.get(name)
        blocks = run.executed.get(name, set()) | {(path, block) for path, block, _ in (known.needs if known else ())}
        further = tree.reach({path for path, _ in blocks}) - tree.reach([file_of(name)])
        needs = _known(tree, blocks | {(path, MODULE) for path in further} | _texts(run.read.get(name, ())))
        tests[name] = Test(needs, frozenset(cases), run.seconds[name], name in run.failed)
    complete = True
    for path, present in run.present.items():
        if any(name not in run.cases for name in present if choice.has(name)):
            complete = False
            continue
        for name in [name for name in tests if file_of(name) == path and name not in present]:
            del tests[name]
        reach = tree.reach([path])
        blocks = {(each, MODULE) for each in reach}.union(*(run.once.get(each, ()) for each in reach))
        texts = _texts(read for each in reach for read in run.read.get(each, ()))
        files[path] = _known(tree, blocks | texts | run.imported.get(path, set()))
    data = tree.data if complete or record is None or not choice.everything else record.data
    return Record(data, files, tests, seed)


def _texts(paths: Iterable[str]) -> set[Block]:
    """Return the blocks of files that are read: who reads files may also list folders."""
    found = {(each, TEXT) for each in paths}
    return {*found, ("", LISTING)} if found else found


def _known(tree: Tree, blocks: Iterable[Block]) -> Known:
    """Return blocks with their digests, without those that do not exist any more."""
    found = ((path, name, tree.block(path, name)) for path, name in blocks)
    return frozenset(each for each in found if each[2] is not None)


def load(path: Path) -> Record | None:
    """Read a record; None if there is none that can be read."""
    try:
        stored = json.loads(path.read_text())
        blocks = [tuple(each) for each in stored["blocks"]]
        known = {key: frozenset(blocks[each] for each in needs) for key, needs in stored["needs"].items()}
        tests = {
            name: Test(known[name], frozenset(each["cases"]), each["seconds"], each["failed"])
            for name, each in stored["tests"].items()
        }
        return Record(stored["data"], {name: known[name] for name in stored["files"]}, tests, stored["seed"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def save(record: Record, path: Path) -> None:
    """Write a record."""
    needs = {**record.files, **{name: test.needs for name, test in record.tests.items()}}
    numbers = {block: at for at, block in enumerate(sorted({block for each in needs.values() for block in each}))}
    stored = {
        "seed": record.seed,
        "data": dict(record.data),
        "files": list(record.files),
        "tests": {
            name: {"cases": sorted(test.cases), "seconds": round(test.seconds, 3), "failed": test.failed}
            for name, test in record.tests.items()
        },
        "blocks": list(numbers),
        "needs": {key: sorted(numbers[block] for block in each) for key, each in needs.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(stored))
    part.replace(path)
