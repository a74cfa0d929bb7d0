"""Environments as users make them: a Python of their own, with packages from an index and millpond from its wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ("PRESENT", "ROOT", "SUPPORTED", "Environment", "find_python")

ROOT = Path(__file__).parents[2]

_CLASSIFIERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]

SUPPORTED = [
    version for each in _CLASSIFIERS if "." in (version := each.removeprefix("Programming Language :: Python :: "))
]
"""The versions of Python that millpond supports, by its metadata."""

PRESENT = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""The version of the Python that runs the tests."""


def find_python(version: str) -> Path | None:
    """Return a Python of a version such as 3.12, or None: that of the tests, one on PATH, or one of pyenv."""
    return next((path for path in _candidates(version) if _is_version(path, version)), None)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        yield Path(directory) / f"python{version}"
    for versions in (Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions").glob(f"{version}.*"):
        yield versions / "bin" / "python3"


def _is_version(python: Path, version: str) -> bool:
    if not python.exists():
        return False
    say = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", say], capture_output=True, text=True, check=False)
    return done.stdout.strip() == version


class Environment:
    """A virtual environment without packages.

    Args:
        directory: a new directory for it.
        python: the Python that it is made of.
    """

    def __init__(self, directory: Path, python: Path) -> None:
        self.directory = directory
        self.python = directory / "bin" / "python"
        # The tests themselves run with variables that a user does not have.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MILLPOND_"))}
        self.variables = {
            **inherited,
            "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(directory),
            "PYTHONUNBUFFERED": "1",
        }
        self._uv("venv", "--python", python, directory, where=ROOT)

    def install(self, *words: str | Path, where: Path = ROOT) -> None:
        """Install packages, with the arguments of `pip install`."""
        # uv that is started as a module takes the environment of its own Python for the one that is active.
        # It keeps wheels by directory and version, and the wheel of another run may have had the same.
        fresh = ("--refresh-package", "millpond")
        self._uv("pip", "install", "--python", self.python, *fresh, *words, where=where)

    def _uv(self, *words: str | Path, where: Path) -> None:
        self._checked([sys.executable, "-m", "uv", *words, "--quiet", "--no-python-downloads"], where)

    def run(self, *words: str | Path, where: Path) -> str:
        """Run a program of this environment, which has to succeed; return its output."""
        return self._checked([self.directory / "bin" / words[0], *words[1:]], where)

    def shell(self, line: str, where: Path, **variables: str) -> str:
        """Run a line of a shell, as if the environment were activated; it has to succeed.

        Args:
            line: the line.
            where: the current directory.
            variables: variables besides those of the environment.
        """
        return self._checked(["bash", "-euc", line], where, variables)

    def _checked(self, words: list[str | Path], where: Path, variables: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            words, cwd=where, env={**self.variables, **(variables or {})}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}"
        return done.stdout
