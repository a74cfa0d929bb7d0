"""The size and the shape of the code: files, rooms, floors and circles per package, large folders, long modules.

A room is a direct child of a package: a module or a folder. The floors of a package are its longest chain of imports
between rooms; a circle is a group of rooms that import each other.

    python -m tests.packaging.structure
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import grimp

__all__ = ("FOLDERS", "ROOT", "Package", "circles_of", "floors_of", "folder_sizes", "line_counts", "main", "packages")

ROOT = Path(__file__).parents[2]

FOLDERS = ("worker", "operator", "spark", "tests", "bench", "e2e", "examples", "docs", "helm")
"""Where the project's Python is."""

_ROOT_PACKAGES = ("millpond", "millpond_operator", "millpond_spark")
_SMALL_PACKAGE = 6
_SHOWN = 15


@dataclass(frozen=True, slots=True)
class Package:
    """One package, with its rooms seen as wholes."""

    name: str
    files: int
    lines: int
    rooms: int
    floors: int
    circles: tuple[tuple[str, ...], ...]


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
        rooms = graph.find_children(name)
        if not rooms or (name not in _ROOT_PACKAGES and len(graph.find_descendants(name)) < _SMALL_PACKAGE):
            continue
        imports = _imports_between(graph, rooms)
        circles = circles_of(imports)
        folder = next(root for root in ("worker", "operator", "spark") if (ROOT / root / name.split(".")[0]).is_dir())
        inside = f"{folder}/{name.replace('.', '/')}/"
        files = [lines for path, lines in by_folder.items() if path.startswith(inside)]
        yield Package(name, len(files), sum(files), len(rooms), floors_of(imports, circles), circles)


def _imports_between(graph: grimp.ImportGraph, rooms: set[str]) -> dict[str, set[str]]:
    """Which rooms each room imports, by itself or by what is in it."""
    room_of = {module: room for room in rooms for module in (room, *graph.find_descendants(room))}
    return {
        room: {
            room_of[imported]
            for module in (room, *graph.find_descendants(room))
            for imported in graph.find_modules_directly_imported_by(module)
            if imported in room_of
        }
        - {room}
        for room in rooms
    }


def circles_of(imports: Mapping[str, set[str]]) -> tuple[tuple[str, ...], ...]:
    """Groups of rooms that all reach each other."""
    reached = {room: _reach(room, imports) for room in imports}
    groups = {
        tuple(sorted(other.rpartition(".")[2] for other in reached[room] if room in reached[other]))
        for room in imports
        if room in reached[room]
    }
    return tuple(sorted(groups))


def _reach(room: str, imports: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(imports[room])
    while ahead:
        if (each := ahead.pop()) not in found:
            found.add(each)
            ahead += imports[each]
    return found


def floors_of(imports: Mapping[str, set[str]], circles: tuple[tuple[str, ...], ...]) -> int:
    """The rooms on the longest chain of imports; the rooms of a circle are on one floor."""
    circle_of = {name: number for number, circle in enumerate(circles) for name in circle}

    def place(room: str) -> object:
        name = room.rpartition(".")[2]
        return circle_of.get(name, name)

    below: dict[object, set[object]] = {}
    for room, imported in imports.items():
        below.setdefault(place(room), set()).update(map(place, imported))
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
    print(f"{'package':{widest}}  files   lines  rooms  floors  circles")
    for each in measured:
        print(
            f"{each.name:{widest}}  {each.files:5}  {each.lines:6,}  {each.rooms:5}  {each.floors:6}  "
            + ("; ".join(" <> ".join(circle) for circle in each.circles) or "-")
        )
    sizes = folder_sizes()
    _print_table("Folders with the most Python files", sorted(sizes.items(), key=lambda each: -each[1])[:_SHOWN])
    _print_table("Longest modules, in lines", _largest_modules(line_counts()))
    _print_table("Longest functions, in lines", _longest_functions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
