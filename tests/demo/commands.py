"""The commands in documentation: fenced blocks, and the programs that they start."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.docs import pages
from tests.support.kafka import eventually

__all__ = ("ROOT", "Block", "Shell", "blocks", "commands", "replace_words")

ROOT = pages.ROOT


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str


def blocks(document: str) -> list[Block]:
    """Return the fenced blocks of a document in the repository, in order."""
    return [Block(each.language, each.text) for each in pages.blocks(document) if each.language]


def commands(document: str) -> list[str]:
    """Return the commands of a document's `sh` blocks in order, with joined continuation lines and without comments."""
    found = []
    for language, text in blocks(document):
        if language == "sh":
            lines = text.replace("\\\n", " ").splitlines()
            found += [" ".join(shlex.split(line, comments=True)) for line in lines if line.strip()]
    return found


def replace_words(text: str, words: Mapping[str, str]) -> str:
    """Return a text with other words for some: whole ones only, and nothing is replaced twice.

    A free port may contain the digits of another one that the documentation names.
    """
    if not words:
        return text
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
    return re.sub(pattern, lambda found: words[found[0]], text)


class Running:
    """A program in the background, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self.said += line

    def wait_for(self, text: str) -> None:
        """Wait until its output contains a text."""

        def said() -> bool:
            assert self._process.poll() is None, self.said
            return text in self.said

        eventually(said, f"it says {text!r}", timeout_s=90)

    def stop(self) -> None:
        """Stop it by Ctrl-C; it has to end with success."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 0, self.said
        self._reader.join(60)

    def end(self) -> None:
        """Kill it in any state."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(60)


class Shell:
    """Runs `millpond …` and `python …` like an activated environment.

    Args:
        directory: the current directory; the repository is on Python's path.
        replaced: texts to replace in commands, such as a port that may be in use.
        state: the directory of kept state.
        runtime: the directory beside it, in which sessions find each other.
    """

    def __init__(self, directory: Path, replaced: Mapping[str, str], state: Path, runtime: str = "run") -> None:
        self._directory = directory
        self._replaced = replaced
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
        if cache := os.environ.get("MILLPOND_CACHE"):
            inherited["MILLPOND_CACHE"] = cache
        paths = os.pathsep.join(map(str, (ROOT / "worker", ROOT / "operator", ROOT, directory)))
        self._environment = {
            **inherited,
            "PYTHONPATH": paths,
            "XDG_STATE_HOME": str(state),
            "XDG_RUNTIME_DIR": str(state.with_name(runtime)),
            "PYTHONUNBUFFERED": "1",
        }
        self._running: list[Running] = []

    def export(self, command: str) -> None:
        """Set a variable, by `export NAME=VALUE`."""
        name, _, value = self.replace(command).removeprefix("export ").partition("=")
        self._environment[name] = value

    def run(self, command: str) -> str:
        """Run a command, which has to succeed; return its output."""
        done = subprocess.run(
            self._arguments(command), cwd=self._directory, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def start(self, command: str) -> Running:
        """Start a command that runs until it is stopped."""
        process = subprocess.Popen(
            self._arguments(command), cwd=self._directory, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self._running.append(Running(process))
        return self._running[-1]

    def stop(self) -> None:
        """Stop all started commands, the latest first."""
        while self._running:
            self._running.pop().stop()

    def close(self) -> None:
        """Kill all commands that still run."""
        for each in self._running:
            each.end()

    def replace(self, text: str) -> str:
        """Return a text of the documentation with replacements."""
        return replace_words(text, self._replaced)

    def _arguments(self, command: str) -> list[str]:
        program, *arguments = shlex.split(self.replace(command))
        programs = {
            "millpond": [sys.executable, "-m", "millpond.cli"],
            "python": [sys.executable],
            "uvicorn": [sys.executable, "-m", "uvicorn"],
        }
        return [*programs.get(program, [program]), *arguments]
