"""The sources of packages: a commit for a release, or the checkout as it is."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from .commands import program
from .failures import ReleaseFailed

__all__ = ("ROOT", "Sources", "committed", "working_tree")

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Sources:
    """The files of a commit, or of a checkout.

    Attributes:
        directory: the directory with the files.
        commit: the id of the commit, or of the last one below a checkout.
        epoch: the time of the commit, in epoch seconds: SOURCE_DATE_EPOCH of all that is built from it.
    """

    directory: Path
    commit: str
    epoch: int

    @property
    def version(self) -> str:
        """The version in pyproject.toml."""
        return str(tomllib.loads((self.directory / "pyproject.toml").read_text())["project"]["version"])


def committed(directory: Path, root: Path = ROOT) -> Sources:
    """Write the files of the checked out commit into a new directory.

    Raises:
        ReleaseFailed: `root` is no git checkout, or has changes that are not committed.
    """
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise ReleaseFailed(
            f"{len(changed.splitlines())} files have changes that are not committed: commit or stash them, since a "
            "release is made of a commit."
        )
    commit, epoch = _git(root, "log", "-1", "--no-show-signature", "--format=%H %ct").split()
    directory.mkdir(parents=True)
    archive = directory.with_suffix(".tar")
    _git(root, "archive", f"--output={archive}", "HEAD")
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    archive.unlink()
    return Sources(directory, commit, int(epoch))


def working_tree(directory: Path, root: Path = ROOT) -> Sources:
    """Copy the files of the checkout into a new directory: with changes, and without what git ignores.

    Raises:
        ReleaseFailed: `root` is no git checkout.
    """
    commit, epoch = _git(root, "log", "-1", "--no-show-signature", "--format=%H %ct").split()
    for name in _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (root / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, directory / name)
    return Sources(directory, commit, int(epoch))


def _git(root: Path, *arguments: str) -> str:
    git = program("git", "install it")
    done = subprocess.run([git, "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"git cannot read {root}: {done.stderr.strip() or done.returncode}.")
    return done.stdout.strip()
