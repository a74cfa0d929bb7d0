"""The code stays in sizes that one can read: short modules, small folders, imports without cycles between parts."""

from __future__ import annotations

from tests.packaging import structure

LONGEST_MODULE = 500
LARGEST_FOLDER = 20

#: Folders whose files are all of one kind, with what that is.
OF_ONE_KIND = {
    "tests/operating": "tests, one file for each behaviour of the operator as a whole",
}


def test_no_module_is_longer_than_500_lines():
    """A longer one has more than one idea, and is split along them."""
    assert {path: lines for path, lines in structure.line_counts().items() if lines > LONGEST_MODULE} == {}


def test_no_folder_has_more_than_20_modules_of_different_kinds():
    """A larger one is grouped, so that a reader finds a file by its folder."""
    sizes = structure.folder_sizes()
    large = {folder: files for folder, files in sizes.items() if files > LARGEST_FOLDER and folder not in OF_ONE_KIND}
    assert large == {}, "group the modules in subfolders, or say in OF_ONE_KIND of which kind they all are"


def test_folders_of_one_kind_are_still_large():
    """An exception that is not needed any more is removed."""
    sizes = structure.folder_sizes()
    assert {folder for folder in OF_ONE_KIND if sizes.get(folder, 0) <= LARGEST_FOLDER} == set()


def test_every_root_package_is_measured():
    """The table shows each root package, and every package under it that is not small."""
    measured = {each.name: each for each in structure.packages()}
    assert {"millpond", "millpond_operator", "millpond_spark", "millpond.runtime.tasks"} <= measured.keys()
    assert measured["millpond"].files > measured["millpond.runtime"].files > measured["millpond.runtime"].parts
    assert measured["millpond"].cycles == ()


def test_parts_of_a_cycle_share_a_level():
    """Two parts that import each other count once in the chain."""
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    cycles = structure.cycles_of(imports)
    assert cycles == (("b", "c"),)
    assert structure.levels_of(imports, cycles) == 3
