"""Other programs, run to their end or beside the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

__all__ = ("ROOT", "WORK", "CommandFailed", "Lacking", "background", "end", "found", "run")

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "e2e"
"""The directory for files of a run."""


class Lacking(Exception):
    """The machine or the cluster lacks something that the tests need; the message is one sentence."""


class CommandFailed(Exception):
    """A program ended with an error; the message has the end of its output."""


def found(program: str) -> str | None:
    """Return the path of a program; None if it is not installed. `$KUBECTL`, `$KIND` and `$DOCKER` name others."""
    return shutil.which(os.environ.get(program.upper(), program))


def run(
    *command: str | os.PathLike[str],
    text: str | None = None,
    timeout_s: float = 120,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return its standard output.

    Args:
        command: program and arguments.
        text: its standard input.
        timeout_s: how long it may take.
        environment: variables besides those of this process.

    Raises:
        CommandFailed: it failed, or took longer.
    """
    told = " ".join(str(each) for each in command)
    try:
        done = subprocess.run(
            [str(each) for each in command],
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"`{told}` did not end within {timeout_s:g} s") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip())[-2_000:]
        raise CommandFailed(f"`{told}` failed ({done.returncode}): {words}")
    return done.stdout


def background(*command: str | os.PathLike[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program beside the tests; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C is for the tests, which still need it while they tidy up
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program that was started in the background."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
