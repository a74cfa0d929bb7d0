"""The Go tool chain on this machine, for Go programs that tests need."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from millpond.errors import MillpondError

__all__ = ("find_go", "run_go")

_LONGEST_S = 1800.0


def find_go() -> str | None:
    """Return the path of Go: the one on PATH, else the one in /usr/local/go; None if there is none."""
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"]))


def run_go(go: str, where: Path, *arguments: str, failed: type[MillpondError], **environment: str) -> str:
    """Run Go without a C compiler, and return its output.

    Args:
        go: the path of Go.
        where: the working directory.
        arguments: the command line.
        failed: the error class to raise.
        environment: further environment variables.

    Raises:
        MillpondError: an instance of `failed`: Go failed, or took more than half an hour.
    """
    command = f"`go {' '.join(arguments[:2])}` in {where}"
    try:
        done = subprocess.run(
            [go, *arguments],
            cwd=where,
            env={**os.environ, "CGO_ENABLED": "0", **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired as late:
        raise failed(f"{command} took more than {late.timeout:g} s: check that Go can download modules.") from late
    if done.returncode != 0:
        last = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-5:])
        raise failed(f"{command} failed; the last lines of its output:\n{last}")
    return done.stdout
