"""The tree of a checkout, as git would commit it now, and the seed that follows from it.

The same files give the same seed on every machine, committed or not, so a run of the checks can be repeated before and
after a commit. Another tree has another seed, so each change is tested with other random choices.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Tree", "tree_of")

_BITS = 32
#: Files that tools leave in a checkout without git. With git, .gitignore names them.
_LEFT_BY_TOOLS = frozenset({".git", ".venv", "build", "dist", "__pycache__"})


@dataclass(frozen=True)
class Tree:
    """The content of a checkout.

    Attributes:
        id: the id of git's tree object; without git, the SHA-256 of all names and contents.
    """

    id: str

    @property
    def seed(self) -> int:
        """The seed of all random choices of a run on this tree."""
        return int(self.id[: _BITS // 4], 16)


def tree_of(root: Path) -> Tree:
    """Return the tree of a checkout, with uncommitted changes and files that git does not know yet nor ignores."""
    if shutil.which("git") is not None and _git(root, "rev-parse", "--is-inside-work-tree") == "true":
        return Tree(_written(root))
    return Tree(_hashed(root))


def _written(root: Path) -> str:
    """Write the tree by a temporary index, so that the checkout's own index stays as it is."""
    with tempfile.TemporaryDirectory(prefix="millpond-tree-") as directory:
        index = Path(directory) / "index"
        own = root / _git(root, "rev-parse", "--git-path", "index")
        if own.exists():
            shutil.copy2(own, index)  # it knows which files did not change
        _git(root, "add", "--all", index=index)
        return _git(root, "write-tree", index=index)


def _git(root: Path, *arguments: str, index: Path | None = None) -> str:
    """Return the output of git; empty when it failed outside of a checkout."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    done = subprocess.run(
        ["git", *arguments], cwd=root, env=environment, capture_output=True, text=True, check=index is not None
    )
    return done.stdout.strip()


def _hashed(root: Path) -> str:
    content = hashlib.sha256()
    for file in sorted(_files(root)):
        content.update(f"{file.relative_to(root).as_posix()}\0".encode())
        content.update(
            str(file.readlink()).encode() if file.is_symlink() else hashlib.sha256(file.read_bytes()).digest()
        )
    return content.hexdigest()


def _files(root: Path) -> list[Path]:
    found = []
    for directory, below, names in os.walk(root):
        below[:] = [each for each in below if each not in _LEFT_BY_TOOLS and not each.endswith((".egg-info", "_cache"))]
        links = [each for each in below if (Path(directory) / each).is_symlink()]
        found += [Path(directory) / each for each in (*names, *links)]
    return found
