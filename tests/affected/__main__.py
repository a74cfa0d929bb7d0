"""Run the plain tests that a change can have broken: `python -m tests.affected -- -m "not slow"`.

They are those that executed a changed function when they last ran, those whose files import a module that changed
outside of functions, and those that failed. What has no record runs. Everything runs after a change of any file that
is not Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.affected import record as records
from tests.affected.record import Choice, Record
from tests.affected.session import CACHE, FOLDER_VARIABLE, RECORD, ROOT, Given, collected
from tests.affected.tree import read
from tests.support import seeds

_NO_TESTS = 5
#: Tests of so many seconds are worth a second process, which has to start and to collect first.
_WORTH_A_PROCESS_S = 2.0
_FINISHED = (0, 1, _NO_TESTS)


def main() -> int:
    """Choose tests, run them, and record what they execute; return pytest's exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.affected", description=__doc__)
    parser.add_argument("--all", action="store_true", help="run all tests, and do not record")
    parser.add_argument("--jobs", type=int, default=4, help="processes for all tests; for chosen ones at most two")
    parser.add_argument("--list", action="store_true", help="show the chosen tests, and run none")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    given = parser.parse_args()
    if any(each.startswith("-k") or "::" in each for each in given.arguments):
        parser.error("the record has whole files: choose single tests with `make plain`")
    record = records.load(RECORD)
    tree = read(ROOT, CACHE)
    choice = Choice(everything="ALL=1") if given.all else records.choose(record, tree)
    print(told(choice, record), flush=True)
    if given.list:
        print("\n".join(sorted(choice.files | choice.tests)))
        return 0
    if not choice.everything and not choice.files and not choice.tests:
        return 0
    recording = not given.all or record is None
    with tempfile.TemporaryDirectory(prefix="millpond-affected-") as name:
        Given(tree, choice, recording).write(Path(name))
        environment = {**os.environ, FOLDER_VARIABLE: name, "PYTEST_PLUGINS": "tests.affected.recording"}
        jobs = given.jobs if choice.everything else processes(choice, record)
        seed = seeds.fresh() if record is None or (choice.everything and not given.all) else record.seed
        command = [sys.executable, "-m", "pytest", *given.arguments, "--seed", str(seed), "-n", str(jobs)]
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if recording and status in _FINISHED:
            records.save(records.merged(record, tree, collected(Path(name)), choice, seed), RECORD)
    return 0 if status == _NO_TESTS else status


def told(choice: Choice, record: Record | None) -> str:
    """Return the line that says how many tests are chosen, of how many."""
    if choice.everything:
        return f"plain tests: all are chosen, since {choice.everything}"
    assert record is not None
    chosen = [test for name, test in record.tests.items() if choice.has(name)]
    files = {records.file_of(each) for each in choice.tests} | choice.files
    cases, of_all = sum(len(each.cases) for each in chosen), sum(len(each.cases) for each in record.tests.values())
    return f"plain tests: {cases} of {of_all} are chosen, in {len(files)} of {len(record.files)} files"


def processes(choice: Choice, record: Record | None) -> int:
    """Return how many pytest processes are worth it for a choice."""
    assert record is not None
    seconds = sum(test.seconds for name, test in record.tests.items() if choice.has(name))
    return 2 if seconds > _WORTH_A_PROCESS_S else 0


if __name__ == "__main__":
    sys.exit(main())
