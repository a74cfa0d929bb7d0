"""Which tests a change chooses, by what they executed when they last ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.affected.blocks import digest, parse
from tests.affected.record import Choice, Record, Run, choose, load, merged, save
from tests.affected.tree import Tree

FILES = {
    "worker/shop/__init__.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from shop.till import Till as Till
""",
    "worker/shop/prices.py": """
LIMIT = 3
def price():
    return LIMIT
def unused():
    return 0
""",
    "worker/shop/till.py": """
from shop.prices import price
class Till:
    def total(self):
        return price()
""",
    "worker/shop/doors.py": """
def open_door():
    return True
""",
    "tests/shop/conftest.py": "",
    "tests/shop/test_till.py": """
from shop import Till
def test_total():
    assert Till().total() == 3
def test_till():
    Till()
""",
    "tests/shop/test_doors.py": """
from shop.doors import open_door
def test_door():
    assert open_door()
""",
}
TOTAL, TILL, DOOR = (
    "tests/shop/test_till.py::test_total",
    "tests/shop/test_till.py::test_till",
    "tests/shop/test_doors.py::test_door",
)
EVERYTHING = Choice(everything="of a test")


def tree_of(files: Mapping[str, str] = FILES, **data: str) -> Tree:
    """Return a tree of Python files, and of others by their names."""
    return Tree(
        {path: parse(text.encode()) for path, text in files.items()},
        {key: digest(text.encode()) for key, text in data.items()},
    )


def run_of_all() -> Run:
    """What a run of all three tests measures."""
    run = Run(present={"tests/shop/test_till.py": [TOTAL, TILL], "tests/shop/test_doors.py": [DOOR]})
    run.executed[TOTAL] |= {
        ("tests/shop/test_till.py", "test_total"),
        ("worker/shop/till.py", "Till.total"),
        ("worker/shop/prices.py", "price"),
    }
    run.executed[TILL] |= {("tests/shop/test_till.py", "test_till")}
    run.executed[DOOR] |= {("tests/shop/test_doors.py", "test_door"), ("worker/shop/doors.py", "open_door")}
    for each in (TOTAL, TILL, DOOR):
        run.cases[each] = {""}
        run.seconds[each] = 0.1
    return run


def recorded(run: Run | None = None) -> Record:
    """The record after a run of all tests."""
    return merged(None, tree_of(), run or run_of_all(), EVERYTHING)


def chosen(record: Record | None, tree: Tree) -> set[str]:
    """Return which of the three tests are chosen."""
    choice = choose(record, tree)
    return {each for each in (TOTAL, TILL, DOOR) if choice.has(each)}


def changed(path: str, old: str, new: str) -> dict[str, str]:
    """Return the files after a change of one."""
    assert old in FILES[path]
    return {**FILES, path: FILES[path].replace(old, new)}


def test_no_change_chooses_nothing():
    """The record fits the files."""
    assert chosen(recorded(), tree_of()) == set()


def test_no_record_chooses_all():
    """Nothing is known yet."""
    assert chosen(None, tree_of()) == {TOTAL, TILL, DOOR}


def test_a_changed_function_chooses_the_tests_that_executed_it():
    """Another test of the same file did not execute it."""
    assert chosen(recorded(), tree_of(changed("worker/shop/prices.py", "return LIMIT", "return LIMIT + 1"))) == {TOTAL}


def test_a_changed_function_that_no_test_executes_chooses_nothing():
    """Its module is imported by tests, but they never call it."""
    assert chosen(recorded(), tree_of(changed("worker/shop/prices.py", "return 0", "return 1"))) == set()


def test_a_changed_constant_chooses_all_tests_that_import_its_module():
    """Also through other modules, and through a name that a package imports when it is first used."""
    assert chosen(recorded(), tree_of(changed("worker/shop/prices.py", "LIMIT = 3", "LIMIT = 4"))) == {TOTAL, TILL}


def test_a_changed_signature_chooses_all_tests_that_import_its_module():
    """A default or a decorator takes effect on import."""
    assert chosen(recorded(), tree_of(changed("worker/shop/doors.py", "open_door()", "open_door(wide=False)"))) == {
        DOOR
    }


def test_a_comment_chooses_nothing():
    """It changes no result."""
    assert chosen(recorded(), tree_of(changed("worker/shop/doors.py", "return True", "return True  # always"))) == set()


def test_a_comment_chooses_the_tests_that_read_the_file():
    """Some tests check the text of the code."""
    run = run_of_all()
    run.read[DOOR].add("worker/shop/prices.py")
    tree = tree_of(changed("worker/shop/prices.py", "return LIMIT", "return LIMIT  # now"))
    assert chosen(recorded(run), tree) == {DOOR}


def test_a_file_that_is_read_once_is_read_for_all_tests_that_import_the_reader():
    """A cached function reads a file for its first caller only."""
    run = run_of_all()
    run.read["worker/shop/till.py"].add("worker/shop/doors.py")
    tree = tree_of(changed("worker/shop/doors.py", "return True", "return True  # always"))
    assert chosen(recorded(run), tree) == {TOTAL, TILL}


def test_a_new_module_chooses_the_tests_that_read_files():
    """They may list the folders of the code."""
    run = run_of_all()
    run.read["tests/shop/test_doors.py"].add("worker/shop/prices.py")
    assert chosen(recorded(run), tree_of({**FILES, "worker/shop/windows.py": ""})) == {DOOR}


@pytest.mark.parametrize("path", ["worker/shop/doors.py", "tests/shop/conftest.py"])
def test_a_deleted_file_chooses_the_tests_that_need_it(path: str):
    """They fail now, or get something else."""
    left = {each: text for each, text in FILES.items() if each != path}
    assert DOOR in chosen(recorded(), tree_of(left))


def test_a_deleted_test_file_chooses_nothing_and_is_forgotten():
    """Its tests do not exist any more."""
    left = tree_of({each: text for each, text in FILES.items() if each != "tests/shop/test_doors.py"})
    assert choose(recorded(), left) == Choice()
    after = merged(recorded(), left, Run(), Choice())
    assert DOOR not in after.tests
    assert "tests/shop/test_doors.py" not in after.files


def test_a_new_test_file_is_chosen():
    """It has no record."""
    choice = choose(recorded(), tree_of({**FILES, "tests/shop/test_new.py": "def test_new():\n    pass\n"}))
    assert choice.files == {"tests/shop/test_new.py"}


def test_a_new_test_is_chosen_with_its_file():
    """The names of tests are part of their module."""
    text = FILES["tests/shop/test_doors.py"] + "\n\ndef test_new():\n    pass\n"
    choice = choose(recorded(), tree_of({**FILES, "tests/shop/test_doors.py": text}))
    assert choice.has("tests/shop/test_doors.py::test_new")
    assert not choice.has(TOTAL)


def test_a_new_conftest_chooses_the_tests_below_it():
    """Its fixtures replace others."""
    files = {**FILES, "tests/shop/sub/test_far.py": "def test_far():\n    pass\n"}
    run = run_of_all()
    run.present["tests/shop/sub/test_far.py"] = ["tests/shop/sub/test_far.py::test_far"]
    run.cases["tests/shop/sub/test_far.py::test_far"] = {""}
    record = merged(None, tree_of(files), run, EVERYTHING)
    assert choose(record, tree_of({**files, "tests/shop/sub/conftest.py": ""})).files == {"tests/shop/sub/test_far.py"}


@pytest.mark.parametrize(
    "after", [{"golden": "2"}, {}, {"golden": "1", "other": "1"}], ids=["changed", "deleted", "added"]
)
def test_changed_data_chooses_all(after: dict[str, str]):
    """No record says which tests a golden file, a template or a setting concerns."""
    record = merged(None, tree_of(golden="1"), run_of_all(), EVERYTHING)
    assert choose(record, tree_of(golden="1")) == Choice()
    assert chosen(record, tree_of(**after)) == {TOTAL, TILL, DOOR}


def test_changed_data_is_known_after_all_tests_ran():
    """A run that ends early leaves the rest for the next one."""
    before = merged(None, tree_of(golden="1"), run_of_all(), EVERYTHING)
    now = tree_of(golden="2")
    assert choose(merged(before, now, run_of_all(), choose(before, now)), now) == Choice()
    part = run_of_all()
    del part.cases[DOOR]
    assert choose(merged(before, now, part, choose(before, now)), now).everything


def test_a_failed_test_stays_chosen_until_it_passes():
    """Also without a further change."""
    run = run_of_all()
    run.failed.add(DOOR)
    failed = recorded(run)
    assert chosen(failed, tree_of()) == {DOOR}
    again = run_of_all()
    for each in (TOTAL, TILL):
        del again.cases[each]
    assert chosen(merged(failed, tree_of(), again, choose(failed, tree_of())), tree_of()) == set()


def test_a_chosen_test_that_did_not_run_stays_chosen():
    """The run was interrupted."""
    record, now = recorded(), tree_of(changed("worker/shop/prices.py", "LIMIT = 3", "LIMIT = 4"))
    run = run_of_all()
    del run.cases[TILL], run.cases[DOOR]
    assert chosen(merged(record, now, run, choose(record, now)), now) == {TOTAL, TILL}


def test_what_runs_once_belongs_to_all_tests_that_import_it():
    """A cached function runs for its first caller only, a function that is called on import for none."""
    run = run_of_all()
    run.once["worker/shop/till.py"].add(("worker/shop/prices.py", "unused"))
    tree = tree_of(changed("worker/shop/prices.py", "return 0", "return 1"))
    assert chosen(recorded(run), tree) == {TOTAL, TILL}


def test_a_module_that_is_imported_by_its_name_as_text_belongs_to_the_test():
    """No import statement leads to it, but the test executed a function of it."""
    run = run_of_all()
    run.executed[DOOR].add(("worker/shop/prices.py", "unused"))
    tree = tree_of(changed("worker/shop/prices.py", "LIMIT = 3", "LIMIT = 4"))
    assert chosen(recorded(run), tree) == {TOTAL, TILL, DOOR}


def test_cases_of_earlier_runs_are_remembered():
    """A run takes some of many cases, and the next one others."""
    again = run_of_all()
    again.executed[TOTAL].discard(("worker/shop/prices.py", "price"))
    record = merged(recorded(), tree_of(), again, EVERYTHING)
    assert chosen(record, tree_of(changed("worker/shop/prices.py", "return LIMIT", "return 7"))) == {TOTAL}


def test_a_record_is_the_same_after_it_is_read(tmp_path: Path):
    """A record that cannot be read is none."""
    record = recorded()
    save(record, tmp_path / "record.json")
    assert load(tmp_path / "record.json") == record
    (tmp_path / "record.json").write_text("{}")
    assert load(tmp_path / "record.json") is None
    assert load(tmp_path / "absent.json") is None


def test_code_that_cannot_be_parsed_is_a_change():
    """The tests that import it say what is wrong."""
    assert chosen(recorded(), tree_of(changed("worker/shop/doors.py", "return True", "return ("))) == {DOOR}


def test_methods_properties_and_nested_functions_belong_to_one_block():
    """A change inside a nested function is a change of the function around it."""
    text = """class A:
    @property
    def b(self):
        return [c for c in ()]

    @b.setter
    def b(self, value):
        def d():
            return 1
"""
    source = parse(text.encode())
    assert source.block_at(8) == source.block_at(2) == source.block_at(4) == "A.b"
    assert source.block_at(1) == "<module>"
    other = parse(text.replace("return 1", "return 2").encode())
    assert {name for name in source.blocks if source.blocks[name] != other.blocks[name]} == {"A.b", "<text>"}


def test_times_do_not_choose():
    """They only say how many processes are worth it."""
    record = recorded()
    slow = {name: replace(each, seconds=9.0) for name, each in record.tests.items()}
    assert choose(replace(record, tests=slow), tree_of()) == Choice()
