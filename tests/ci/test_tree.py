"""The seed of a run of all checks follows from the files of the checkout, and from nothing else."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ci import tree as trees
from tests.ci.tree import tree_of


def _git(root: Path, *arguments: str) -> str:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    return subprocess.run(
        ["git", *author, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, processes: None) -> Path:
    """A repository with one commit, and a file that is ignored."""
    root = tmp_path / "checkout"
    (root / "package").mkdir(parents=True)
    (root / "package/module.py").write_text("x = 1\n")
    (root / ".gitignore").write_text("build/\n")
    (root / "build").mkdir()
    (root / "build/log").write_text("anything")
    _git(root, "init", "-q")
    _git(root, "add", "--all")
    _git(root, "commit", "-q", "-m", "Begin")
    return root


def test_a_committed_tree_is_that_of_the_commit(checkout):
    """It is git's own id, so a clone and a checkout agree."""
    assert tree_of(checkout).id == _git(checkout, "rev-parse", "HEAD^{tree}")


@pytest.mark.parametrize("change", ["module.py", "new.py"])
def test_a_change_has_its_seed_before_and_after_it_is_committed(checkout, change):
    """A changed file and a new one count at once, and the index of the checkout stays as it was."""
    before = tree_of(checkout)
    (checkout / "package" / change).write_text("x = 2\n")
    changed = tree_of(checkout)
    assert changed.seed != before.seed
    assert _git(checkout, "diff", "--cached") == ""
    _git(checkout, "add", "--all")
    _git(checkout, "commit", "-q", "-m", "Change")
    assert tree_of(checkout) == changed


def test_ignored_files_do_not_count(checkout):
    """What a run of tests leaves changes no seed."""
    before = tree_of(checkout)
    (checkout / "build/log").write_text("another run")
    assert tree_of(checkout) == before


def test_a_checkout_in_a_worktree_has_the_same_tree(checkout, tmp_path):
    """There `.git` is a file, and the index is elsewhere."""
    _git(checkout, "worktree", "add", "-q", str(tmp_path / "other"))
    assert tree_of(tmp_path / "other") == tree_of(checkout)


def test_without_git_the_files_decide(checkout, tmp_path, monkeypatch):
    """Copies agree wherever they are, a change counts, and what tools leave does not."""
    copy = tmp_path / "copy"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git"))
    monkeypatch.setattr(trees.shutil, "which", lambda _: None)
    assert tree_of(copy) == tree_of(checkout)
    (copy / "build/more").write_text("x")
    assert tree_of(copy) == tree_of(checkout)
    (copy / "package/module.py").write_text("x = 2\n")
    assert tree_of(copy).seed != tree_of(checkout).seed
