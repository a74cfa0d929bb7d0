"""Commands that the release runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .failures import ReleaseFailed

__all__ = ("program", "run")


def run(*command: str | Path, where: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output.

    Args:
        command: the program and its arguments.
        where: the working directory.
        environment: variables besides those of this process.

    Raises:
        ReleaseFailed: it failed; the message has the end of its output.
    """
    done = subprocess.run(
        [str(each) for each in command],
        cwd=where,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(f"    {line}" for line in (done.stderr + done.stdout).strip().splitlines()[-12:])
        raise ReleaseFailed(f"`{' '.join(str(each) for each in command[:4])}` failed; the end of its output:\n{last}")
    return done.stdout


def program(name: str, cure: str) -> str:
    """Return the path of a program.

    Raises:
        ReleaseFailed: it is not on PATH.
    """
    found = shutil.which(name)
    if found is None:
        raise ReleaseFailed(f"The release needs {name}, which is not on PATH: {cure}.")
    return found
