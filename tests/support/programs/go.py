"""Programs of the tests and of the release: downloaded as released, or built from their Go modules, into the cache."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError
from tests.support.programs import releases

__all__ = ("GoProgram", "GoProgramMissing", "find_go", "one_at_a_time", "run_go")

_LONGEST_S = 1800.0


def find_go() -> str | None:
    """Return the path of Go: the one on PATH, else the one in /usr/local/go; None if there is none."""
    return shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/go/bin"]))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Wait until no other process makes programs: a compiler keeps all processors busy; the first is ready sooner."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "programs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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


class GoProgramMissing(MillpondError):
    """A program is not installed, or cannot be built."""


@dataclass(frozen=True)
class GoProgram:
    """A program at a pinned release.

    Attributes:
        name: the name that people know.
        package: the Go package, without a version.
        release: the version of its module.
        cure: how to get it, for the message when it is missing.
        on_path: whether the one on PATH does, too, whatever its version.
        variables: variables of the program that its own build sets, as `package.name=value`.
    """

    name: str
    package: str
    release: str
    cure: str
    on_path: bool = False
    variables: tuple[str, ...] = ()

    def find(self) -> Path:
        """Return the program that was built, else the one on PATH if that does.

        Raises:
            GoProgramMissing: there is neither.
        """
        if os.access(self._built, os.X_OK):
            return self._built
        if self.on_path and (elsewhere := shutil.which(self._program)):
            return Path(elsewhere)
        raise GoProgramMissing(f"There is no {self.name} on this machine: {self.cure}.")

    def build(self) -> Path:
        """Get the program unless it exists, and return its path. Building it takes two cores a minute or more.

        Raises:
            GoProgramMissing: it cannot be downloaded, and Go is not installed, or failed.
        """
        if os.access(self._built, os.X_OK):
            return self._built
        self._built.parent.mkdir(parents=True, exist_ok=True)
        with one_at_a_time():
            if not os.access(self._built, os.X_OK) and not releases.fetch(self.name, self._built):
                self._install(self._built.parent)
        return self._built

    @property
    def _program(self) -> str:
        return self.package.rpartition("/")[2]

    @property
    def _built(self) -> Path:
        return cache_directory() / self.name / self.release / self._program

    def _install(self, directory: Path) -> None:
        go = find_go()
        if go is None:
            raise GoProgramMissing(f"Building {self.name} needs Go, which is not installed: install it.")
        began = time.monotonic()
        sys.stderr.write(f"Building {self.name} {self.release} with {go} (once, into {directory})\n")
        sys.stderr.flush()
        part = directory / "part"  # an interrupted build leaves no incomplete program under the final name
        flags = " ".join(["-s -w", *(f"-X {variable}" for variable in self.variables)])
        module = f"{self.package}@{self.release}"
        run_go(
            go, directory, "install", "-trimpath", "-ldflags", flags, module, failed=GoProgramMissing, GOBIN=str(part)
        )
        (part / self._program).rename(self._built)
        part.rmdir()
        sys.stderr.write(f"{self.name}: {time.monotonic() - began:.0f} s\n")
