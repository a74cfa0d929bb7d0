"""The files of the repository as they are now: their blocks, what they import, and a digest of everything else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from tests.affected.blocks import Import, Source, digest, parse

__all__ = ("LISTING", "Tree", "read")

LISTING = "<files>"
"""In the place of a block: the list of all Python files, which tests depend on that read files of the code."""
#: Where the names of modules begin: `pythonpath` in pyproject.toml.
_ROOTS = ("worker", "operator", "spark", "")
_NOT_READ = frozenset({".git", ".venv", "build", "dist", "__pycache__", "node_modules"})


@dataclass(frozen=True)
class Tree:
    """All files of the repository.

    Attributes:
        sources: the Python files, by their path from the root.
        data: a digest of each other file.
    """

    sources: Mapping[str, Source]
    data: Mapping[str, str]
    _edges: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def changed(self, path: str, content: bytes) -> Tree:
        """Return the tree with another content of one Python file."""
        return Tree({**self.sources, path: parse(content)}, self.data)

    def listing(self) -> str:
        """Return a digest of the list of Python files."""
        return digest("\n".join(sorted(self.sources)).encode())

    def block(self, path: str, name: str) -> str | None:
        """Return the digest of a block; None if there is no such block."""
        if name == LISTING:
            return self.listing()
        source = self.sources.get(path)
        return None if source is None else source.blocks.get(name)

    def reach(self, paths: Iterable[str]) -> set[str]:
        """Return the files that are imported with these, and these. A test module brings its conftest modules."""
        found: set[str] = set()
        ahead = list(paths)
        while ahead:
            path = ahead.pop()
            if path in self.sources and path not in found:
                found.add(path)
                if path not in self._edges:
                    self._edges[path] = tuple(self._beside(path))
                ahead += self._edges[path]
        return found

    def _beside(self, path: str) -> set[str]:
        """Return the files that one file imports itself."""
        package = path.endswith("/__init__.py")
        found = {
            each
            for item in self.sources[path].imports
            if not (item.lazy and package)
            for each in self._imported(path, item)
        }
        if PurePosixPath(path).name.startswith("test_"):
            found.update(f"{folder}/conftest.py" for folder in PurePosixPath(path).parents)
        return found & self.sources.keys()

    def _imported(self, path: str, found: Import) -> Iterator[str]:
        """Yield the files that one import of a file may name."""
        level = len(found.module) - len(found.module.lstrip("."))
        parts = [each for each in found.module.split(".") if each]
        starts = ["/".join(path.split("/")[:-level])] if level else _ROOTS
        for start in starts:
            places = ["/".join(filter(None, (start, *parts[:end]))) for end in range(1, len(parts) + 1)] or [start]
            yield from (f"{each}/__init__.py" for each in places)
            yield f"{places[-1]}.py"
            for name in found.names:
                yield f"{places[-1]}/{name}.py"
                yield f"{places[-1]}/{name}/__init__.py"
            yield from self._imported_later(f"{places[-1]}/__init__.py", found)

    def _imported_later(self, package: str, found: Import) -> Iterator[str]:
        """Yield the files of the names that a package imports when they are first used."""
        source = self.sources.get(package)
        for each in source.imports if source and not found.lazy else ():
            if each.lazy and (not found.names or set(each.names) & set(found.names)):
                yield from self._imported(package, each)


def read(root: Path, cache: Path | None = None) -> Tree:
    """Read all files.

    Args:
        root: the root of the repository, or of a copy.
        cache: where to keep what was parsed, since most files never change between two calls.
    """
    kept: dict[str, Source] = {}
    try:
        kept = {} if cache is None else _load(json.loads(cache.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    sources: dict[str, Source] = {}
    data: dict[str, str] = {}
    parsed: dict[str, Source] = {}
    for path in _paths(root):
        try:
            content = (root / path).read_bytes()
        except OSError:  # deleted, and git still has it; or a link to a folder
            continue
        key = digest(content)
        if path.endswith(".py"):
            parsed[key] = sources[path] = kept.get(key) or parse(content)
        else:
            data[path] = key
    if cache is not None and parsed.keys() != kept.keys():
        cache.parent.mkdir(parents=True, exist_ok=True)
        part = cache.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps({key: asdict(each) for key, each in parsed.items()}))
        part.replace(cache)
    return Tree(sources, data)


def _load(stored: Mapping[str, dict]) -> dict[str, Source]:
    return {
        key: Source(
            each["blocks"],
            tuple((first, last, name) for first, last, name in each["spans"]),
            tuple(Import(item["module"], tuple(item["names"]), item["lazy"]) for item in each["imports"]),
        )
        for key, each in stored.items()
    }


def _paths(root: Path) -> list[str]:
    """Return all files that git has, or would add; without git, all that are not hidden."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        return sorted(set(listed.split("\0")) - {""})
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each not in _NOT_READ and not each.startswith(".")]
        found += [str((Path(folder) / each).relative_to(root)) for each in files]
    return sorted(found)
