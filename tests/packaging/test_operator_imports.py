"""The lock of the operator's image has every package that the operator imports, now or later."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging.test_locks import pins

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "operator", ROOT / "worker")
OWN = {"millpond", "millpond_operator"}
CANARY = "millpond.canary.__main__"
"""`helm test` runs it in the operator's image, too; without brokers it imports nothing inside functions."""

CHECK = "millpond_operator.manifests"
"""Only `millpond check` runs it, on a user's machine, with an extra: counted if a module of the operator imports it."""


def file_of(module: str) -> Path | None:
    """The file of one of our modules; None for a module of another package, or an attribute."""
    paths = (source / Path(*module.split(".")) for source in SOURCES)
    files = (each for path in paths for each in (path.with_suffix(".py"), path / "__init__.py"))
    return next((each for each in files if each.exists()), None)


def statements(node: ast.AST, *, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements that are executed; those for type checkers are not."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.Import, ast.ImportFrom)):
            yield each
        elif isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test):
            for other in each.orelse:
                yield from statements(other, inside_functions=inside_functions)
        elif inside_functions or not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from statements(each, inside_functions=inside_functions)


def imported_by(module: str, file: Path, *, inside_functions: bool) -> Iterator[str]:
    """The modules that a module imports. Of `from a import b` both `a` and `a.b`, which may be no module."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for each in statements(tree, inside_functions=inside_functions):
        if isinstance(each, ast.Import):
            yield from (name.name for name in each.names)
            continue
        above = package.split(".")[: len(package.split(".")) - each.level + 1] if each.level else []
        home = ".".join([*above, *([each.module] if each.module else [])])
        yield from (home, *(f"{home}.{name.name}" for name in each.names))


def foreign_imports(modules: Iterable[str], *, inside_functions: bool) -> dict[str, str]:
    """Packages of others that modules import, and all of ours that these import: by name, one of ours that does so."""
    seen, waiting = set[str](), list(modules)
    found: dict[str, str] = {}
    while waiting:
        module = waiting.pop()
        file = file_of(module)
        if module in seen or file is None:
            continue
        seen.add(module)
        for each in imported_by(module, file, inside_functions=inside_functions):
            top, *rest = each.split(".")
            if top in OWN:
                waiting += [".".join([top, *rest[:end]]) for end in range(len(rest) + 1)]
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, module)
    return found


@functools.cache
def operator_imports() -> dict[str, str]:
    files = (ROOT / "operator" / "millpond_operator").rglob("*.py")
    modules = [".".join(each.relative_to(ROOT / "operator").with_suffix("").parts) for each in files]
    modules = [each.removesuffix(".__init__") for each in modules if not each.startswith(f"{CHECK}.")]
    return foreign_imports([CANARY], inside_functions=False) | foreign_imports(modules, inside_functions=True)


def with_requirements(distributions: Iterable[str]) -> dict[str, str]:
    """Distributions and all that they require on this machine, without extras: by name, one that requires it."""
    found: dict[str, str] = {}
    waiting = [(each, "the operator") for each in distributions]
    while waiting:
        name, by = waiting.pop()
        if canonicalize_name(name) in found:
            continue
        found[canonicalize_name(name)] = by
        needed = (Requirement(each) for each in requires(name) or ())
        waiting += [(each.name, name) for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.slow
def test_lock_has_all_that_the_operator_imports() -> None:
    """Imports inside functions count, since they fail only when the function is called."""
    imports, homes = operator_imports(), packages_distributions()
    assert {"kopf", "joserfc", "grandalf", "cronsim", "msgspec", "yaml"} <= imports.keys(), "imports are found"
    needed = with_requirements(name for each in imports for name in homes[each])
    assert {"joserfc", "grandalf", "pyparsing", "pyyaml"} <= needed.keys(), "requirements are found"
    locked = {canonicalize_name(each) for each in pins("requirements-operator.lock")}
    assert {name: by for name, by in needed.items() if name not in locked} == {}


def test_imports_inside_functions_and_of_own_modules_are_found() -> None:
    """But not those for type checkers."""
    tree = ast.parse(
        "import a\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import b\n"
        "def f():\n    import c\nclass D:\n    import d\n"
    )

    def names(*, inside_functions: bool) -> set[str]:
        found = statements(tree, inside_functions=inside_functions)
        return {each.names[0].name for each in found if isinstance(each, ast.Import)}

    assert names(inside_functions=True) == {"a", "c", "d"}
    assert names(inside_functions=False) == {"a", "d"}
    assert "millpond.drawing.layout" in operator_imports()["grandalf"]
