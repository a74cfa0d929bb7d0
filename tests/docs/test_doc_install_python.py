"""The page about the package is true: supported Pythons, extras, versions."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from .pages import ROOT, blocks

PAGE = "docs/install-python.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FOR_DEVELOPERS = {"examples", "test", "lint", "monitoring", "docs", "dev"}


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / PAGE).read_text(encoding="utf-8")


def test_the_page_has_every_extra(text):
    """All extras but those for work on millpond itself."""
    shown = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    assert set(shown) == PROJECT["optional-dependencies"].keys() - FOR_DEVELOPERS
    assert len(shown) == len(set(shown))


def test_the_page_has_the_supported_pythons(text):
    """Those of the classifiers, which the tests of wheels install it with."""
    marked = [each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert ", ".join(marked[:-1]) + " and " + marked[-1] in " ".join(text.split())


def test_requirements_of_the_page_accept_this_version(text):
    """The ranges of the page and of `millpond new` contain the version that is built from this commit."""
    tables = [tomllib.loads(block.text) for block in blocks(PAGE) if block.language == "toml"]
    [requirement] = [Requirement(each) for table in tables for each in table.get("project", {}).get("dependencies", [])]
    assert requirement.name == "millpond"
    assert PROJECT["version"] in requirement.specifier
    [added] = re.findall(r"uv add 'millpond(\S+)'", text)
    assert SpecifierSet(added) == requirement.specifier
    assert set(re.findall(r"millpond-worker:([\d.]+\d)", text)) == {PROJECT["version"]}
