"""The Java archives that millpond needs: pinned in `jars.lock.toml`, downloaded by jgo's settings, cached per user.

The lock file lists every jar, so no dependency is resolved at run time. A jar that is not in the cache is downloaded,
verified against its SHA-256 and then moved into the cache. So the cache contains only verified files. An aborted
download continues where it stopped: unfinished files are in `partial`, by their checksums.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import importlib.resources
import os
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from millpond.errors import MillpondError

__all__ = (
    "LOCK_FILE", "Jar", "JarError", "cache_directory", "classpath", "jar_sets", "locked", "maven", "paths",
    "remove_damaged",
)  # fmt: skip

LOCK_FILE = "jars.lock.toml"
_ATTEMPTS = 3  # per jar; repositories drop a connection now and then
_PARALLEL = 6  # downloads at the same time
_CHUNK = 1 << 16
_TIMEOUT_S = 60
_LINE_INTERVAL_S = 5.0
_WHOLE, _REST = 200, 206  # HTTP's answers to requests of a file, and of a part of it


class JarError(MillpondError):
    """A jar cannot be downloaded, or has another checksum than in the lock file."""


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of the lock file."""

    coordinate: str
    """`group:artifact:version`."""
    sha256: str
    """Checksum of the file, in hexadecimal."""
    size: int
    """Size of the file, in bytes."""

    @property
    def path(self) -> Path:
        """Path of the jar below the cache directory, in the layout of a Maven repository."""
        group, artifact, version = self.coordinate.split(":")
        return Path("jars", *group.split("."), artifact, version, f"{artifact}-{version}.jar")


def cache_directory() -> Path:
    """Return the directory of downloads: `$MILLPOND_CACHE`, `$XDG_CACHE_HOME/millpond` or `~/.cache/millpond`."""
    if explicit := os.environ.get("MILLPOND_CACHE"):
        return Path(explicit).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "millpond"


def jar_sets() -> tuple[str, ...]:
    """Return the names of the jar sets."""
    return tuple(_lock()["sets"])


def locked(jar_set: str) -> tuple[Jar, ...]:
    """Return the jars of a set from the lock file, in class-path order.

    Raises:
        JarError: no set has this name.
    """
    lock = _lock()
    if jar_set not in lock["sets"]:
        message = f"There is no jar set called {jar_set!r}; the lock file has {', '.join(lock['sets'])}."
        raise JarError(message)
    return tuple(Jar(name, **lock["jars"][name]) for name in lock["sets"][jar_set]["jars"])


def paths(jar_set: str) -> list[Path]:
    """Return the paths of the jars of a set, in class-path order; missing jars are downloaded first.

    Of several processes that call this at the same time, one downloads and the others wait.

    Raises:
        JarError: a jar cannot be downloaded, or has a wrong checksum.
    """
    cache = cache_directory()
    jars = locked(jar_set)
    if _missing(cache, jars):
        with _exclusive(cache):
            _download(cache, _missing(cache, jars))  # checked again: another process may have downloaded them
    return [cache / jar.path for jar in jars]


def remove_damaged(jar_set: str) -> list[str]:
    """Remove the jars of a set from the cache that are not those of the lock file, and return their coordinates.

    A power failure, for example, may leave files that have their size but not their content.
    """
    cache = cache_directory()
    found = []
    for jar in locked(jar_set):
        path = cache / jar.path
        with contextlib.suppress(OSError):
            if sha256(path) != jar.sha256:
                path.unlink()
                found.append(jar.coordinate)
    return found


def classpath(jar_set: str) -> str:
    """Return the jars of a set as one `java -cp` argument. Downloads and raises like `paths`."""
    return os.pathsep.join(str(path) for path in paths(jar_set))


def maven(repository: Path, **resolver: Any) -> Any:
    """Return a jgo `MavenContext` that stores files below `repository` and uses the user's jgo configuration.

    Raises:
        JarError: jgo is not installed.
    """
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        message = "Downloading Kafka's jars needs jgo; install it with \"pip install 'millpond[broker]'\"."
        raise JarError(message) from error
    # A repository configured for jgo (such as a company's mirror) comes before jgo's default.
    own = GlobalSettings.load().repositories
    context = MavenContext(resolver=PythonResolver(**resolver), repo_cache=repository, timeout=60)
    context.remote_repos = {**own, **context.remote_repos}
    return context


@functools.cache
def _lock() -> dict[str, Any]:
    return tomllib.loads(importlib.resources.files(__package__).joinpath(LOCK_FILE).read_text(encoding="utf-8"))


def _missing(cache: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Return the jars that the cache does not contain in full size. Files in the cache were verified before."""
    missing = []
    for jar in jars:
        try:
            present = (cache / jar.path).stat().st_size == jar.size
        except OSError:
            present = False
        if not present:
            missing.append(jar)
    return missing


@contextlib.contextmanager
def _exclusive(cache: Path) -> Iterator[None]:
    """Hold the lock file of the cache; the kernel releases it even when the process is killed."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w", encoding="utf-8")
    except OSError as error:
        message = f"The cache directory {cache} is not writable ({error.strerror}); set MILLPOND_CACHE to one that is."
        raise JarError(message) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(cache: Path, jars: Sequence[Jar]) -> None:
    if not jars:
        return
    repositories = maven(cache).remote_repos.values()
    stopped = threading.Event()
    with (
        _progress(jars) as advance,
        concurrent.futures.ThreadPoolExecutor(_PARALLEL, thread_name_prefix="millpond-jars") as pool,
    ):
        part = functools.partial(_fetch, _Download(tuple(repositories), cache, advance, stopped))
        fetched = [pool.submit(part, jar) for jar in jars]
        try:
            for future in concurrent.futures.as_completed(fetched):
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


class _Download(NamedTuple):
    """What the downloads of all jars share."""

    repositories: tuple[str, ...]
    """URLs of Maven repositories, the preferred one first."""
    cache: Path
    advance: Callable[[int], None]
    """Reports downloaded bytes."""
    stopped: threading.Event
    """Set to end all downloads."""


def _fetch(shared: _Download, jar: Jar) -> None:
    """Download one jar, verify it, and then move it into the cache. What an aborted download left is continued."""
    part = shared.cache / "partial" / jar.sha256
    part.parent.mkdir(parents=True, exist_ok=True)
    if have := _size(part):
        shared.advance(have)
    _download_part(shared, jar, part)
    if have and sha256(part) != jar.sha256:  # what was left there is damaged
        part.unlink()
        shared.advance(-jar.size)
        _download_part(shared, jar, part)
    try:
        verify(jar, part)
    except JarError:
        part.unlink()
        raise
    target = shared.cache / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part.replace(target)


def _download_part(shared: _Download, jar: Jar, part: Path) -> None:
    """Download what a file lacks, in some attempts.

    Raises:
        JarError: all of them failed.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _continue(shared, jar, part)
            break
        except Exception as error:
            if attempt == _ATTEMPTS or shared.stopped.is_set():
                message = (
                    f"{jar.coordinate} could not be downloaded ({error}); check the network and retry: it continues "
                    "where it stopped."
                )
                raise JarError(message) from error


def _continue(shared: _Download, jar: Jar, part: Path) -> None:
    """Download what a file lacks.

    Raises:
        ConnectionError: the connection ended too early, or no repository has the jar.
    """
    have = _size(part)
    if have >= jar.size:
        return
    answers = []
    for repository in shared.repositories:
        with _get(f"{repository}/{jar.path.relative_to('jars').as_posix()}", have) as response:
            if response.status_code not in (_WHOLE, _REST):
                answers.append(f"HTTP {response.status_code} from {repository}")
                continue
            if response.status_code == _WHOLE and have:  # a repository that cannot continue
                shared.advance(-have)
            with part.open("ab" if response.status_code == _REST else "wb") as file:
                for chunk in response.iter_content(_CHUNK):
                    file.write(chunk)
                    shared.advance(len(chunk))
                    if shared.stopped.is_set():
                        raise ConnectionError("it was interrupted")
            break
    else:
        raise ConnectionError(", ".join(answers))
    if (found := _size(part)) < jar.size:
        raise ConnectionError(f"the connection ended after {found:,} of {jar.size:,} bytes")


def _get(url: str, start: int) -> Any:
    """Request the bytes of a file from an offset on."""
    from jgo.util import http

    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={start}-"} if start else {})}
    return http.get(url, stream=True, timeout=_TIMEOUT_S, headers=headers)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def verify(jar: Jar, file: Path) -> None:
    """Check a file against the lock file.

    Raises:
        JarError: the file has another SHA-256.
    """
    found = sha256(file)
    if found != jar.sha256:
        message = (
            f"{jar.coordinate} has SHA-256 {found}, but {LOCK_FILE} pins {jar.sha256}: the repository sent a"
            " different file, which is not used; try another network or mirror."
        )
        raise JarError(message)


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Lines:
    """Progress in lines, for logs: one every few seconds, and one at the end."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._due = time.monotonic() + _LINE_INTERVAL_S
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        """Report downloaded bytes. Safe from any thread."""
        with self._lock:
            self._done += count
            if self._done >= self._total or time.monotonic() >= self._due:
                self._due = time.monotonic() + _LINE_INTERVAL_S
                sys.stderr.write(f"  {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB\n")
                sys.stderr.flush()


@contextlib.contextmanager
def _progress(jars: Sequence[Jar]) -> Iterator[Callable[[int], None]]:
    """Yield a function that reports downloaded bytes: as a progress bar on a terminal, as one line elsewhere."""
    total = sum(jar.size for jar in jars)
    what = f"Downloading {len(jars)} jars (only once, to {cache_directory()})"
    if not sys.stderr.isatty():
        sys.stderr.write(f"{what}, {total / 1e6:.0f} MB\n")
        sys.stderr.flush()
        yield _Lines(total).advance
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
