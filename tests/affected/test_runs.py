"""Runs of the command in a small repository: what pytest executes is recorded, and chosen after a change."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = {
    "pyproject.toml": """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["worker", "."]
addopts = ["--import-mode=importlib"]
""",
    "worker/shop/__init__.py": "",
    "worker/shop/prices.py": """
import functools

@functools.cache
def table():
    return dict(rows())

def rows():
    return [("tea", 3), ("milk", 2)]

def price(name):
    return table()[name]
""",
    "worker/shop/doors.py": """
WIDTH = 2

def width():
    return WIDTH
""",
    "tests/conftest.py": """
def pytest_addoption(parser):
    parser.addoption("--seed", type=int)
""",
    "tests/test_prices.py": """
import pytest
from shop import prices

@pytest.mark.parametrize("name", ["tea", "milk"])
def test_every_price(name):
    assert prices.price(name) > 1

def test_tea():
    assert prices.price("tea") == 3
""",
    "tests/test_doors.py": """
import importlib
from pathlib import Path

def test_width():
    assert importlib.import_module("shop.doors").width() == 2

def test_text():
    assert "TODO" not in Path("worker/shop/doors.py").read_text()
""",
}


@pytest.fixture
def shop(tmp_path: Path, processes):
    """Make a small repository; return a function that tells which tests ran and which failed, and an editor."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    own = tmp_path / "tests" / "affected"
    own.mkdir()
    for path in HERE.glob("*.py"):
        if not path.name.startswith("test_"):
            shutil.copy(path, own)
    (tmp_path / "tests/support").mkdir()
    shutil.copy(HERE.parent / "support" / "seeds.py", tmp_path / "tests/support")

    def run(*options: str) -> tuple[set[str], set[str]]:
        command = [sys.executable, "-m", "tests.affected", "--jobs", "1", *options, "--", "-rA", "-q"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        print(done.stdout, done.stderr)
        passed = {line.split()[1].rpartition("::")[2] for line in lines if line.startswith("PASSED")}
        failed = {line.split()[1].rpartition("::")[2] for line in lines if line.startswith("FAILED")}
        return passed | failed, failed

    def edit(path: str, old: str, new: str) -> None:
        text = (tmp_path / path).read_text()
        assert old in text
        (tmp_path / path).write_text(text.replace(old, new))

    return run, edit


def test_tests_are_chosen_by_what_they_executed(shop):
    """By functions, also in a cache; by modules that are imported by name; by files that are read."""
    run, edit = shop
    everything = {"test_every_price[tea]", "test_every_price[milk]", "test_tea", "test_width", "test_text"}
    assert run() == (everything, set())
    assert run() == (set(), set())
    edit("worker/shop/doors.py", "return WIDTH", "return WIDTH  # in metres")
    assert run() == ({"test_text"}, set())
    edit("worker/shop/doors.py", "WIDTH = 2", "WIDTH = 1 + 1")
    assert run() == ({"test_width", "test_text"}, set())
    edit("worker/shop/prices.py", '("tea", 3)', '("tea", 4)')
    assert run() == ({"test_every_price[tea]", "test_every_price[milk]", "test_tea"}, {"test_tea"})


def test_a_failed_test_runs_until_it_passes(shop):
    """A test that fails is no news for the next change, but it is still wrong."""
    run, edit = shop
    edit("tests/test_prices.py", "== 3", "== 5")
    assert run()[1] == {"test_tea"}
    assert run() == ({"test_tea"}, {"test_tea"})
    edit("tests/test_prices.py", "== 5", "== 3")
    assert run() == ({"test_tea"}, set())
    assert run() == (set(), set())


def test_two_processes_record_what_one_does(shop):
    """Each of them writes its part."""
    run, edit = shop
    run("--jobs", "2")
    edit("worker/shop/prices.py", "return table()[name]", "return int(table()[name])")
    assert run() == ({"test_every_price[tea]", "test_every_price[milk]", "test_tea"}, set())


def test_the_seed_stays_until_everything_runs_again(shop, tmp_path: Path):
    """With another seed, tests would have other cases than those of the record."""
    run, edit = shop

    def seed_after_a_run() -> int:
        run()
        [record] = (tmp_path / "build" / "affected").glob("record-*.json")
        return json.loads(record.read_text())["seed"]

    first = seed_after_a_run()
    edit("worker/shop/doors.py", "WIDTH = 2", "WIDTH = 1 + 1")
    assert seed_after_a_run() == first
    edit("pyproject.toml", "testpaths", "\ntestpaths")
    assert seed_after_a_run() != first


def test_all_runs_everything(shop):
    """With `--all` no record is asked, and none is written if there is one."""
    run, edit = shop
    run()
    edit("worker/shop/doors.py", "WIDTH = 2", "WIDTH = 1 + 1")
    assert len(run("--all")[0]) == 5
    assert run()[0] == {"test_width", "test_text"}
