"""A real S3 server for tests: versitygw, installed on this machine, or built once from its Go module.

`python -m tests.support.versitygw` builds it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import time
from pathlib import Path

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError
from tests.support.go import find_go, run_go

__all__ = ("RELEASE", "VersitygwMissing", "build", "find")

RELEASE = "v1.8.0"

_NAME = "versitygw"
_PACKAGE = f"github.com/versity/versitygw/cmd/versitygw@{RELEASE}"


class VersitygwMissing(MillpondError):
    """No S3 server is installed, and none can be built."""


def find() -> Path:
    """Return the program that was built, else the one on PATH.

    Raises:
        VersitygwMissing: there is neither.
    """
    built = _directory() / _NAME
    if os.access(built, os.X_OK):
        return built
    if on_path := shutil.which(_NAME):
        return Path(on_path)
    raise VersitygwMissing(
        "There is no S3 server for tests on this machine: build it with `make versitygw`, which needs Go, or put "
        "versitygw on PATH."
    )


def build() -> Path:
    """Build the program unless it exists, and return its path. This takes one core about three minutes.

    Raises:
        VersitygwMissing: Go is not installed, or failed.
    """
    go = find_go()
    if go is None:
        raise VersitygwMissing(
            "Building versitygw needs Go, which is not installed: install it, or put versitygw on PATH."
        )
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.access(directory / _NAME, os.X_OK):
            _install(go, directory)
    return directory / _NAME


def _directory() -> Path:
    return cache_directory() / _NAME / RELEASE


def _install(go: str, directory: Path) -> None:
    began = time.monotonic()
    sys.stderr.write(f"Building {_NAME} {RELEASE} with {go} (once, into {directory})\n")
    part = directory / "part"  # an interrupted build leaves no incomplete program under the final name
    run_go(
        go, directory, "install", "-trimpath", "-ldflags", "-s -w", _PACKAGE, failed=VersitygwMissing, GOBIN=str(part)
    )
    (part / _NAME).rename(directory / _NAME)
    part.rmdir()
    sys.stderr.write(f"{_NAME}: {time.monotonic() - began:.0f} s\n")


def main() -> None:
    """Print the path of the program; build it if it does not exist."""
    try:
        try:
            found = find()
        except VersitygwMissing:
            found = build()
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
    print(found)


if __name__ == "__main__":
    main()
