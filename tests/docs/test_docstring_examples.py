"""Every operator has an example in its docstring, and all examples of docstrings run."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest

import millpond as mp
from millpond.testing import TopologyTestDriver
from tests.packaging.public_api import INTERNAL, MODULES

from .pages import blocks

OPERATORS = (
    mp.StreamsBuilder, mp.KStream, mp.BranchedKStream, mp.KTable, mp.KGroupedStream, mp.KGroupedTable,
    mp.CogroupedKStream, mp.TimeWindowedKStream, mp.SessionWindowedKStream, mp.TimeWindowedCogroupedKStream,
    mp.SessionWindowedCogroupedKStream,
)  # fmt: skip
WINDOWS = (
    mp.TimeWindows, mp.SlidingWindows, mp.SessionWindows, mp.UnlimitedWindows, mp.JoinWindows, mp.EmitStrategy,
)  # fmt: skip


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings of public classes and functions, and of their members, by name."""
    seen: set[int] = set()
    for module_name, chosen in MODULES.items():
        module = __import__(module_name, fromlist=["_"])
        for name in sorted(chosen or module.__all__):
            value = getattr(module, name)
            ours = getattr(value, "__module__", "").startswith("millpond")
            if id(value) in seen or not ours or not (inspect.isclass(value) or inspect.isroutine(value)):
                continue
            seen.add(id(value))
            yield name, inspect.getdoc(value) or ""
            for member in sorted(dir(value)) if inspect.isclass(value) else ():
                found = inspect.getattr_static(value, member)
                public = not member.startswith("_")
                if public and isinstance(found, FunctionType | staticmethod | classmethod | property):
                    yield f"{name}.{member}", inspect.getdoc(found) or ""


WITH_EXAMPLE = {name: text for name, text in docstrings() if ">>>" in text}


def beginning() -> dict[str, Any]:
    """The names that examples begin with, of docs/api/index.md."""
    names: dict[str, Any] = {}
    [block] = [each for each in blocks("docs/api/index.md") if each.language == "python"]
    exec(compile(block.text, block.page, "exec"), names)
    return names


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_example_of_a_docstring_runs(name: str) -> None:
    """It prints what it says, and a worker could run the topology that it makes."""
    names = beginning()
    test = doctest.DocTestParser().get_doctest(WITH_EXAMPLE[name], names, name, name, 0)
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=told.append, clear_globs=False)
    assert failed == 0, "".join(told)
    with TopologyTestDriver(test.globs["builder"].build()) as driver:
        assert driver.get_all_state_stores() is not None


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.__name__)
def test_every_operator_has_an_example(cls: type) -> None:
    """A reader of the API sees each operator in use."""
    operators = {
        f"{cls.__name__}.{name}"
        for name in dir(cls)
        if not name.startswith("_")
        and inspect.isfunction(inspect.getattr_static(cls, name))
        and name not in INTERNAL.get(cls.__name__, ())
    }
    assert operators - WITH_EXAMPLE.keys() == set()


def test_every_method_of_a_topology_is_in_the_example_of_a_page() -> None:
    """`tests/docs/test_doc_processors.py` runs it."""
    public = {name for name in dir(mp.Topology) if not name.startswith("_")} - INTERNAL["Topology"]
    shown = "".join(block.text for block in blocks("docs/processors.md") if block.language == "python")
    assert {name for name in public if f"topology.{name}(" not in shown} == set()


@pytest.mark.parametrize("cls", WINDOWS, ids=lambda cls: cls.__name__)
def test_every_kind_of_window_has_an_example(cls: type) -> None:
    """The class shows how its objects are made."""
    assert any(re.match(rf"{cls.__name__}(\.|$)", name) for name in WITH_EXAMPLE)
