"""Pages for contributors are true: every path in them exists, and every command can be run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
PAGES = (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/style.md",
    "docs/architecture.md",
    "docs/testing.md",
    "docs/failure-modes.md",
)
BIN = Path(sys.executable).parent

_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_FOLDERS = "|".join(sorted(each.name for each in ROOT.iterdir() if each.is_dir()))
_FILES = "|".join(re.escape(each.name) for each in ROOT.iterdir() if each.is_file())
_PATH = re.compile(rf"(?:{_FOLDERS})(?:/[\w.-]+)+/?|{_FILES}")
_MADE = ("build/", ".venv/")


def text_of(page: str) -> str:
    """A page of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def commands(page: str) -> list[list[str]]:
    """The words of each command in a page's `sh` blocks."""
    lines = [line for block in blocks(page) if block.language == "sh" for line in block.text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def paths(page: str) -> set[str]:
    """What a page names between backticks that is a path of the repository, or looks like one."""
    named = {code for code in _CODE.findall(_BLOCK.sub("", text_of(page))) if _PATH.fullmatch(code)}
    return {each for each in named if not each.startswith(_MADE)}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_page_exists(page):
    """A file that is moved is moved in the pages too."""
    assert {each for each in paths(page) if not (ROOT / each).exists()} == set()


@pytest.mark.parametrize("page", PAGES)
def test_shortened_paths_are_not_used(page):
    """A path is written from the root of the repository, so that this test and an editor find it."""
    short = re.compile(
        r"(?:runtime|controllers|coordinator|state|dsl|queries|tasks|millpond)(?:/[\w.-]+)*/[\w-]+(?:\.py|\.toml|/)"
    )
    assert {code for code in _CODE.findall(text_of(page)) if short.fullmatch(code)} == set()


def test_contributing_names_enough_to_be_worth_a_test():
    """The patterns of this module find what they look for."""
    assert len(paths("CONTRIBUTING.md")) > 80
    assert ["make", "check"] in commands("CONTRIBUTING.md")
    assert ["make", "reference"] in commands("CONTRIBUTING.md")


def test_every_command_of_these_pages_can_be_run(processes):
    """Tasks of `make` exist, tests that are named can be collected, programs are there and know their options."""
    checks = {
        "make": _is_a_task,
        ".venv/bin/python -m pytest": _collects,
        ".venv/bin/python -m pip": _knows_its_options,
        ".venv/bin/pre-commit": _is_configured,
        ".venv/bin/millpond settings": _prints_the_page,
        ".venv/bin/millpond acls": _prints_the_page,
        "source .venv/bin/activate": _comes_with_a_venv,
        "python -m tests.parity": _knows_its_flags,
        ".ci/run": _is_a_program,
    }
    for words in [*commands("CONTRIBUTING.md"), *commands("docs/failure-modes.md")]:
        found = [check for start, check in checks.items() if words[: len(start.split())] == start.split()]
        assert found, f"no check for {shlex.join(words)}"
        found[0](words)


def _run(*words: str | Path) -> str:
    done = subprocess.run([*map(str, words)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def _is_a_task(words: list[str]) -> None:
    assert _run("make", "--dry-run", "--no-print-directory", "--old-file=.venv/ready", *words[1:]).strip()
    makefile = text_of("Makefile")
    for task in (each for each in words[1:] if "=" not in each):
        assert re.search(rf"^{re.escape(task)}:", makefile, re.MULTILINE), task
    for option in (each.partition("=")[0] for each in words[1:] if "=" in each):
        assert f"$({option}" in makefile, option


def _collects(words: list[str]) -> None:
    assert "::" in _run(sys.executable, *words[1:], "--collect-only", "-q")


def _knows_its_options(words: list[str]) -> None:
    told = _run(sys.executable, *words[1:4], "--help")
    assert {each for each in words if each.startswith("--") and each not in told} == set()


def _knows_its_flags(words: list[str]) -> None:
    told = _run(sys.executable, "-m", words[2], "--help")
    assert {each for each in words if each.startswith("--") and each not in told} == set()


def _is_configured(words: list[str]) -> None:
    assert words[1] in {"install", "run"}
    assert "pre-commit==" in text_of("requirements.lock")


def _prints_the_page(words: list[str]) -> None:
    arguments = words[1 : words.index(">")]
    printed = _run(sys.executable, "-m", "millpond.cli", *arguments)
    assert printed == text_of(words[-1]), f"{words[-1]} is out of date: {' '.join(words)}"


def _comes_with_a_venv(words: list[str]) -> None:
    assert (BIN / "activate").exists() or sys.prefix == sys.base_prefix


def _is_a_program(words: list[str]) -> None:
    assert shutil.which(str(ROOT / words[0])) is not None


def test_hooks_run_tools_of_the_venv():
    """A commit needs no network: each hook runs what `make lint` runs, from the environment that the lock pins."""
    config = yaml.safe_load(text_of(".pre-commit-config.yaml"))
    assert [each["repo"] for each in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {each["id"] for each in hooks} == {"ruff-check", "ruff-format", "import-linter", "mypy"}
    for hook in hooks:
        program = hook["entry"].split()[0]
        assert hook["language"] == "system"
        assert program.startswith(".venv/bin/")
        assert shutil.which(Path(program).name, path=str(BIN)), program


def test_the_version_is_the_same_everywhere():
    """A release changes all of them: the distribution, the module, the manifests and the commands of the page."""
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert f'__version__ = "{version}"' in text_of("worker/millpond/__init__.py")
    assert f"newTag: {version}" in text_of("deploy/kustomization.yaml")
    assert set(re.findall(r"millpond-(?:worker|operator|spark):([\w.]+)", text_of("docs/kubernetes.md"))) == {version}
    assert set(re.findall(r"millpond-(?:worker|operator):([\w.]+)", text_of("docs/install.md"))) == {version}
    chart = yaml.safe_load(text_of("helm/millpond/Chart.yaml"))
    assert {chart["version"], chart["appVersion"]} == {version}
    assert set(re.findall(r"millpond-\w+:([\d.]+)", chart["annotations"]["artifacthub.io/images"])) == {version}


def test_every_decision_that_is_cited_exists():
    """Code and pages cite decisions by number, or by the name of the page."""
    pages = [each.stem for each in (ROOT / "docs" / "decisions").glob("0*.md")]
    cited = {
        (found, str(path.relative_to(ROOT)))
        for folder in (
            "worker",
            "operator",
            "spark",
            "tests",
            "bench",
            "e2e",
            "examples",
            "docs",
            "deploy",
            "crds",
            "helm",
        )
        for kind in ("*.py", "*.md", "*.yaml", "*.toml")
        for path in (ROOT / folder).rglob(kind)
        for found in re.findall(r"decisions/(\d{4}[\w-]*)", path.read_text(encoding="utf-8"))
    }
    assert {each for each in cited if not any(page == each[0] or page[:4] == each[0] for page in pages)} == set()


def test_table_of_decisions_has_all_titles():
    """`docs/decisions/README.md` lists each page under its title."""
    rows = dict(re.findall(r"^\| \[\d{4}\]\((\S+)\) \| (.*) \|$", text_of("docs/decisions/README.md"), re.MULTILINE))
    pages = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    assert rows == {each.name: each.read_text(encoding="utf-8").partition("\n")[0][len("# 0000 ") :] for each in pages}
