"""The size and the shape of the code: files, parts, levels and cycles per package, large folders, long modules.

A part is a direct child of a package: a module or a folder. The levels of a package are its longest chain of imports
between parts; a cycle is a group of parts that import each other.

    python -m tests.packaging.structure
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

__all__ = ("FOLDERS", "ROOT", "Package", "cycles_of", "folder_sizes", "levels_of", "line_counts", "main", "packages")

ROOT = Path(__file__).parents[2]

FOLDERS = ("worker", "operator", "spark", "tests", "bench", "e2e", "examples", "docs", "helm")
"""Where the project's Python is."""

_ROOT_PACKAGES = ("millpond", "millpond_operator", "millpond_spark")
_SMALL_PACKAGE = 6
_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Package:
    """One package, with its parts seen as wholes."""

    name: str
    files: int
    lines: int
    parts: int
    levels: int
    cycles: tuple[tuple[str, ...], ...]


# Files


def line_counts(folders: Iterable[str] = FOLDERS) -> dict[str, int]:
    """Return the lines of each Python file, by its path in the repository."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "build" not in path.relative_to(ROOT).parts
    }


def folder_sizes(folders: Iterable[str] = FOLDERS) -> dict[str, int]:
    """Return the number of Python files in each folder, without its `__init__.py` and its subfolders."""
    sizes: dict[str, int] = {}
    for path in line_counts(folders):
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            sizes[folder] = sizes.get(folder, 0) + 1
    return sizes


# Packages


def packages() -> Iterator[Package]:
    """Measure each package that is not small, the root packages first."""
    graph = grimp.build_graph(*_ROOT_PACKAGES, cache_dir=str(ROOT / "build" / "grimp"))
    by_folder = line_counts(("worker", "operator", "spark"))
    for name in sorted(graph.modules, key=lambda each: (each.count("."), each)):
        parts = graph.find_children(name)
        if not parts or (name not in _ROOT_PACKAGES and len(graph.find_descendants(name)) < _SMALL_PACKAGE):
            continue
        imports = _imports_between(graph, parts)
        cycles = cycles_of(imports)
        folder = next(root for root in ("worker", "operator", "spark") if (ROOT / root / name.split(".")[0]).is_dir())
        inside = f"{folder}/{name.replace('.', '/')}/"
        files = [lines for path, lines in by_folder.items() if path.startswith(inside)]
        yield Package(name, len(files), sum(files), len(parts), levels_of(imports, cycles), cycles)


def _imports_between(graph: grimp.ImportGraph, parts: set[str]) -> dict[str, set[str]]:
    """Which parts each part imports, by itself or by what is in it."""
    part_of = {module: part for part in parts for module in (part, *graph.find_descendants(part))}
    return {
        part: {
            part_of[imported]
            for module in (part, *graph.find_descendants(part))
            for imported in graph.find_modules_directly_imported_by(module)
            if imported in part_of
        }
        - {part}
        for part in parts
    }


def cycles_of(imports: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Groups of parts that all reach each other."""
    reached = {part: _reach(part, imports) for part in imports}
    groups = {
        tuple(sorted(other.rpartition(".")[2] for other in reached[part] if part in reached[other]))
        for part in imports
        if part in reached[part]
    }
    return tuple(sorted(groups))


def _reach(part: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(imports[part])
    while ahead:
        if (each := ahead.pop()) not in found:
            found.add(each)
            ahead += imports[each]
    return found


def levels_of(imports: Mapping[str, set[str]], cycles: tuple[tuple[str, ...], ...]) -> int:
    """The parts on the longest chain of imports; the parts of a cycle are on one level."""
    cycle_of = {name: number for number, cycle in enumerate(cycles) for name in cycle}

    def place(part: str) -> object:
        name = part.rpartition(".")[2]
        return cycle_of.get(name, name)

    below: dict[object, set[object]] = {}
    for part, imported in imports.items():
        below.setdefault(place(part), set()).update(map(place, imported))
    heights: dict[object, int] = {}

    def height(here: object) -> int:
        if here not in heights:
            heights[here] = 1 + max((height(each) for each in below[here] if each != here), default=0)
        return heights[here]

    return max(map(height, below), default=0)


# Output


def _largest_modules(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda each: -each[1])[:_SHOWN]


def _longest_functions() -> list[tuple[str, int]]:
    found = [
        (f"{path}: {node.name}", node.end_lineno - node.lineno + 1)
        for path in line_counts(("worker", "operator", "spark"))
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    ]
    return sorted(found, key=lambda each: -each[1])[:_SHOWN]


def _print_table(heading: str, rows: Iterable[tuple[str, int]]) -> None:
    print(f"\n{heading}")
    for name, number in rows:
        print(f"  {number:6,}  {name}")


def main() -> int:
    """Print the tables."""
    measured = list(packages())
    widest = max(len(each.name) for each in measured)
    print(f"{'package':{widest}}  files   lines  parts  levels  cycles")
    for each in measured:
        print(
            f"{each.name:{widest}}  {each.files:5}  {each.lines:6,}  {each.parts:5}  {each.levels:6}  "
            + ("; ".join(" <> ".join(cycle) for cycle in each.cycles) or "-")
        )
    sizes = folder_sizes()
    _print_table("Folders with the most Python files", sorted(sizes.items(), key=lambda each: -each[1])[:_SHOWN])
    _print_table("Longest modules, in lines", _largest_modules(line_counts()))
    _print_table("Longest functions, in lines", _longest_functions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
