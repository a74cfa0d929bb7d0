"""Go programs that tests need: Go, found on this machine and run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from millpond.errors import MillpondError

__all__ = ("find_go", "run_go")

_LONGEST_S = 1800.0


def find_go() -> str | None:
    """Return the path of Go: the one on PATH, else the one in /usr/local/go; None where there is neither."""
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"]))


def run_go(go: str, where: Path, *arguments: str, failed: type[MillpondError], **environment: str) -> str:
    """Run Go without a C compiler, and return what it wrote.

    Args:
        go: its path.
        where: the directory to run it in.
        arguments: its command line.
        failed: the error to raise.
        environment: further variables.

    Raises:
        MillpondError: `failed`: it failed, or took more than half an hour.
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
        raise failed(f"{command} took more than {late.timeout:g} s; see that Go reaches its modules.") from late
    if done.returncode != 0:
        last = "\n".join(f"    {line}" for line in done.stderr.strip().splitlines()[-5:])
        raise failed(f"{command} failed; its last lines:\n{last}")
    return done.stdout
