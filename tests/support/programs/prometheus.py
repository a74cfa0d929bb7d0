"""Prometheus and promtool for tests: those on PATH, or Debian's package, unpacked without root and without a daemon.

`python -m tests.support.programs.prometheus` downloads the package and prints the directory of the two programs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from millpond.broker.jars import cache_directory
from millpond.errors import MillpondError

__all__ = ("PrometheusMissing", "Tools", "find", "install")

_PACKAGE = "prometheus"
_TIMEOUT_S = 300.0


class PrometheusMissing(MillpondError):
    """No Prometheus is installed, and none can be downloaded."""


class Tools(NamedTuple):
    """The two programs."""

    prometheus: Path
    """The server."""
    promtool: Path
    """The checker of rules."""


def find() -> Tools:
    """Return the programs that were unpacked, else those on PATH.

    Raises:
        PrometheusMissing: there are neither.
    """
    unpacked = _unpacked()
    if unpacked is not None:
        return unpacked
    on_path = [shutil.which(name) for name in Tools._fields]
    if all(on_path):
        return Tools(*(Path(each) for each in on_path if each))
    raise PrometheusMissing(
        "There is no Prometheus for tests on this machine: get it with `make prometheus`, which needs apt, or put "
        "prometheus and promtool on PATH."
    )


def install() -> Tools:
    """Download and unpack Debian's package unless that was done, and return the programs. This takes seconds.

    Raises:
        PrometheusMissing: apt or dpkg is missing, or the package cannot be had.
    """
    lacking = [each for each in ("apt-get", "apt-cache", "dpkg-deb") if shutil.which(each) is None]
    if lacking:
        raise PrometheusMissing(
            f"Prometheus for tests is taken from Debian's package, and this machine has no {' and no '.join(lacking)}: "
            "install Prometheus so that prometheus and promtool are on PATH."
        )
    directory = _directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = _unpacked()
        if found is None:
            _unpack(directory)
            found = _unpacked()
    if found is None:
        raise PrometheusMissing(
            "Debian's package prometheus has no program prometheus or promtool: put both on PATH instead."
        )
    return found


def _directory() -> Path:
    return cache_directory() / _PACKAGE


def _unpacked() -> Tools | None:
    programs = Tools(*(_directory() / "package/usr/bin" / name for name in Tools._fields))
    return programs if all(os.access(each, os.X_OK) for each in programs) else None


def _unpack(directory: Path) -> None:
    sys.stderr.write(f"Downloading Debian's package {_PACKAGE} (once, into {directory})\n")
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        try:
            _run(["apt-get", "download", _PACKAGE], Path(scratch))
        except PrometheusMissing:
            if os.geteuid() != 0:
                raise
            _run(["apt-get", "update"], Path(scratch))  # a new machine has no lists, or old ones
            _run(["apt-get", "download", _PACKAGE], Path(scratch))
        (package,) = Path(scratch).glob("*.deb")
        _verify(package)
        part = directory / "part"  # an interrupted run leaves no incomplete package under the final name
        shutil.rmtree(part, ignore_errors=True)
        _run(["dpkg-deb", "-x", str(package), str(part)], Path(scratch))
        part.rename(directory / "package")


def _verify(package: Path) -> None:
    """Compare the file with the checksums of apt's signed package lists.

    Raises:
        PrometheusMissing: it is another file.
    """
    listed = _run(["apt-cache", "show", _PACKAGE], package.parent)
    known = {line.split()[1] for line in listed.splitlines() if line.startswith("SHA256:")}
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    if digest not in known:
        raise PrometheusMissing(
            f"The downloaded {package.name} is not the package of apt's lists (SHA-256 {digest}): run "
            "`apt-get update`, and try again."
        )


def _run(command: list[str], where: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise PrometheusMissing(
            f"`{' '.join(command[:2])}` took more than {late.timeout:g} s: check that apt reaches its mirror."
        ) from late
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PrometheusMissing(
            f"`{' '.join(command[:3])}` failed on {platform.machine()}: {last}. Run `apt-get update`, or put "
            "prometheus and promtool on PATH."
        )
    return done.stdout


def main() -> None:
    """Print the directory of the programs; download them if there are none."""
    try:
        try:
            found = find()
        except PrometheusMissing:
            found = install()
    except MillpondError as error:
        sys.exit(f"millpond: {error}")
    print(found.promtool.parent)


if __name__ == "__main__":
    main()
