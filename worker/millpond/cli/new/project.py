"""The files of a new project: templates in which the application's name is filled in."""

from __future__ import annotations

import importlib.resources
import re
import shutil
import unicodedata
from pathlib import Path

from millpond import __version__
from millpond.errors import MillpondError

__all__ = ("FILES", "NAME", "REQUIRED", "ProjectNotWritten", "find_wheel", "proposed_name", "write_project")

NAME = re.compile(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
"""Names that a StreamApp can have, by the rule of its definition in crds/streamapps.yaml."""

REQUIRED = ("millpond", "mypy", "pytest")
"""Packages that the project depends on: it cannot have the name of one of them."""

_LONGEST = 52

FILES = {
    "app.py": "app.py",
    "tests/test_app.py": "test_app.py",
    "millpond.toml": "millpond.toml",
    "pyproject.toml": "pyproject.toml",
    "Dockerfile": "Dockerfile",
    ".dockerignore": "dockerignore",
    "streamapp.yaml": "streamapp.yaml",
    ".github/workflows/ci.yaml": "ci.yaml",
    "wheels/README.md": "wheels.md",
    "README.md": "README.md",
    ".gitignore": "gitignore",
}
"""The path of each file in the project, and the name of its template."""


class ProjectNotWritten(MillpondError):
    """The directory of the project exists or cannot be written."""


def proposed_name(text: str) -> str | None:
    """Return a valid name that is near a text, or None if no letter is left of it. Letters lose their accents."""
    plain = "".join(each for each in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(each))
    near = re.sub(r"[^a-z0-9]+", "-", plain).lstrip("-0123456789")[:_LONGEST].rstrip("-")
    return near or None


def find_wheel(directory: Path) -> Path:
    """Return the wheel of this millpond in a directory.

    Raises:
        ProjectNotWritten: the directory has none.
    """
    found = sorted(directory.glob(f"millpond-{__version__}-*.whl"))
    if not found:
        raise ProjectNotWritten(
            f"{directory} has no wheel of millpond {__version__}: name the directory with it by --find-links, or leave "
            "that out if a package index has it."
        )
    return found[0]


def write_project(name: str, directory: Path, wheel: Path | None = None) -> None:
    """Write the files of a project into a new directory.

    Args:
        name: the name of the application, which matches `NAME`.
        directory: the directory, which must not exist.
        wheel: millpond's wheel, for the project's `wheels`.

    Raises:
        ProjectNotWritten: it exists, or cannot be written.
    """
    templates = importlib.resources.files(__package__).joinpath("template")
    try:
        directory.mkdir(parents=True)
        for path, template in FILES.items():
            text = templates.joinpath(f"{template}.template").read_text(encoding="utf-8")
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(text, name), encoding="utf-8")
        if wheel is not None:
            shutil.copy(wheel, directory / "wheels")
    except FileExistsError as error:
        raise ProjectNotWritten(
            f"{directory} exists, and `millpond new` changes no files of others: name a new directory with --directory."
        ) from error
    except OSError as error:
        raise ProjectNotWritten(f"{error.filename or directory} cannot be written: {error.strerror}.") from error


def _filled(text: str, name: str) -> str:
    major, minor, _patch = __version__.split(".", 2)
    # Until 1.0 a minor release may break an interface.
    below = f"{int(major) + 1}" if int(major) else f"0.{int(minor) + 1}"
    for token, value in {"@NAME@": name, "@VERSION@": __version__, "@BELOW@": below}.items():
        text = text.replace(token, value)
    return text
