"""Programs of the tests as their projects release them: downloaded once, compared with their checksums, cached.

`releases.toml` names them. Where their hosts cannot be reached, programs are compiled from their Go modules instead
(`go.py`); whether they can be reached is found out within seconds.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import re
import shutil
import sys
import tarfile
import tempfile
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from millpond.errors import MillpondError

__all__ = ("Release", "ReleaseError", "fetch", "install", "platform_name", "reachable", "releases")

PROBE_S = 3.0
"""How long all hosts together have to answer."""
_READ_S = 30.0
_WHOLE_S = 600.0
_OK = 400
_CHUNK = 1 << 20
_PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}


class ReleaseError(MillpondError):
    """A released program cannot be had."""


@dataclass(frozen=True)
class Release:
    """A program for one platform."""

    url: str
    """Of an archive, or of the program itself."""
    member: str = ""
    """The path of the program in the archive; empty if the file is the program."""
    digest: str = ""
    """The algorithm, a colon and the checksum; empty if `checksums` has it."""
    checksums: str = ""
    """The address of a list of checksums (SHA-256)."""

    @property
    def host(self) -> str:
        """The host and port."""
        return urlsplit(self.url).netloc

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.url.rpartition("/")[2]


def platform_name() -> str:
    """Return the name of this machine's system and processor, as in `linux-amd64`."""
    processor = platform.machine().lower()
    return f"{platform.system().lower()}-{_PROCESSORS.get(processor, processor)}"


@functools.cache
def releases(machine: str) -> Mapping[str, Release]:
    """Return the programs that are released for a platform, by name."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return {name: _release(each, each[machine]) for name, each in table.items() if machine in each}


def fetch(name: str, target: Path, known: Mapping[str, Release] | None = None) -> bool:
    """Download a program unless it cannot be had; then tell why on the standard error stream, and return False.

    Args:
        name: of the program in `releases.toml`.
        target: the path that it gets once it is whole.
        known: the programs that there are; by default those for this platform.
    """
    every = releases(platform_name()) if known is None else known
    if name not in every:
        sys.stderr.write(f"{name} is not released for {platform_name()}\n")
        return False
    release = every[name]
    if release.host not in reachable(tuple(every.values())):
        sys.stderr.write(f"{name} cannot be downloaded: {release.host} does not answer\n")
        return False
    began = time.monotonic()
    sys.stderr.write(f"Downloading {name} from {release.host} (once, into {target.parent})\n")
    sys.stderr.flush()
    try:
        install(release, target)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return False
    sys.stderr.write(f"{name}: {time.monotonic() - began:.0f} s\n")
    return True


@functools.cache
def reachable(wanted: tuple[Release, ...]) -> frozenset[str]:
    """Return the hosts of releases that answer at once, all of which are asked at the same time."""
    found: set[str] = set()
    http = _http()  # before the threads start: one that is left behind would import beside the next test

    def ask(release: Release) -> None:
        with contextlib.suppress(OSError):
            if http.head(release.url, timeout=PROBE_S).status_code < _OK:
                found.add(release.host)

    # The look-up of a name knows no timeout: a thread that hangs in it is left behind.
    asking = [
        threading.Thread(target=ask, args=(each,), daemon=True, name=f"probe {each.host}")
        for each in {each.host: each for each in wanted}.values()
    ]
    for each in asking:
        each.start()
    deadline = time.monotonic() + PROBE_S
    for each in asking:
        each.join(max(0.0, deadline - time.monotonic()))
    return frozenset(found)


def install(release: Release, target: Path) -> None:
    """Download a program, and give it its name once it is whole and has the right checksum.

    Raises:
        ReleaseError: it cannot be downloaded, or is another file than the project's.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
        file = Path(scratch) / "file"
        try:
            algorithm, _, expected = (release.digest or f"sha256:{_published(release)}").partition(":")
            found = _download(release.url, file, algorithm)
        except OSError as error:
            raise ReleaseError(f"{release.file} could not be downloaded from {release.host} ({error}).") from error
        if found != expected:
            raise ReleaseError(
                f"{release.file} from {release.host} is not used: its {algorithm} is {found}, but must be {expected}."
            )
        program = Path(scratch) / "program"
        with _opened(release, file) as source, program.open("wb") as copy:
            shutil.copyfileobj(source, copy, _CHUNK)
        program.chmod(0o755)
        program.rename(target)


def _release(shared: Mapping[str, Any], own: Mapping[str, str]) -> Release:
    told = {key: value.format(version=shared["version"]) for key, value in own.items()}
    digests = [f"{algorithm}:{told[algorithm]}" for algorithm in ("sha256", "sha512") if algorithm in told]
    checksums = told.get("checksums") or str(shared.get("checksums", "")).format(version=shared["version"])
    return Release(told["url"], told.get("member", ""), next(iter(digests), ""), checksums)


def _published(release: Release) -> str:
    """Return the SHA-256 of a file from the list that its project publishes.

    Raises:
        ReleaseError: it is not in the list.
    """
    answer = _http().get(release.checksums, timeout=_READ_S)
    answer.raise_for_status()
    found = _checksum(answer.text.splitlines(), release.file)
    if found is None:
        raise ReleaseError(f"{release.file} is not used: {release.checksums} has no checksum of it.")
    return found


def _checksum(lines: Iterable[str], file: str) -> str | None:
    for line in lines:
        words = line.split()
        named = len(words) == 1 or words[-1].lstrip("*") == file
        if words and named and re.fullmatch(r"[0-9a-f]{64}", words[0]):
            return words[0]
    return None


def _download(url: str, file: Path, algorithm: str) -> str:
    """Download a file, and return its checksum.

    Raises:
        OSError: that failed, or took too long.
    """
    digest = hashlib.new(algorithm)
    deadline = time.monotonic() + _WHOLE_S
    with _http().get(url, stream=True, timeout=_READ_S, headers={"Accept-Encoding": "identity"}) as answer:
        answer.raise_for_status()
        with file.open("wb") as copy:
            for chunk in answer.iter_content(_CHUNK):
                digest.update(chunk)
                copy.write(chunk)
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it took more than {_WHOLE_S:g} s")
    return digest.hexdigest()


@contextlib.contextmanager
def _opened(release: Release, file: Path) -> Iterator[IO[bytes]]:
    """Open the program in a file that was downloaded.

    Raises:
        ReleaseError: the archive does not have it.
    """
    with contextlib.ExitStack() as stack:
        try:
            if not release.member:
                source: IO[bytes] | None = stack.enter_context(file.open("rb"))
            elif release.file.endswith(".zip"):
                source = stack.enter_context(stack.enter_context(zipfile.ZipFile(file)).open(release.member))
            else:
                source = stack.enter_context(tarfile.open(file)).extractfile(release.member)
        except (KeyError, tarfile.TarError, zipfile.BadZipFile) as error:
            raise ReleaseError(f"{release.file} from {release.host} has no {release.member}.") from error
        if source is None:
            raise ReleaseError(f"{release.file} from {release.host} has no file {release.member}.")
        yield stack.enter_context(source)


def _http() -> Any:
    """Return the client with which jars are downloaded, too: it uses the certificates and proxies of the system."""
    from jgo.util import http

    return http
