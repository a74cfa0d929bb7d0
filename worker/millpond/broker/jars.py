"""The Java archives millpond needs: named, pinned and checksummed in `jars.lock.toml`, fetched by jgo, cached per user.

The lock file lists every single jar, so nothing is resolved at run time: a jar is either in the cache, where only
verified files ever get, or it is downloaded, verified against its SHA-256 and then moved there.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import importlib.resources
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError

__all__ = ("LOCK_FILE", "Jar", "JarError", "cache_directory", "classpath", "jar_sets", "locked", "maven", "paths")

LOCK_FILE = "jars.lock.toml"
_ATTEMPTS = 3  # per jar; repositories drop a connection now and then
_PARALLEL = 6  # downloads at a time
_CHUNK = 1 << 20


class JarError(MillpondError):
    """A jar cannot be fetched, or what was fetched is not what the lock file names."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock file."""

    coordinate: str
    """`group:artifact:version`."""
    sha256: str
    """Checksum of the whole file, in hex."""
    size: int
    """Bytes."""

    @property
    def path(self) -> Path:
        """Where the jar lies below the cache directory; the layout is a Maven repository's."""
        group, artifact, version = self.coordinate.split(":")
        return Path("jars", *group.split("."), artifact, version, f"{artifact}-{version}.jar")


def cache_directory() -> Path:
    """Where millpond keeps what it downloaded: `$MILLPOND_CACHE`, `$XDG_CACHE_HOME/millpond` or `~/.cache/millpond`."""
    if explicit := os.environ.get("MILLPOND_CACHE"):
        return Path(explicit).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "millpond"


def jar_sets() -> tuple[str, ...]:
    """The names `classpath` and `paths` know."""
    return tuple(_lock()["sets"])


def locked(jar_set: str) -> tuple[Jar, ...]:
    """The jars of a set as the lock file has them, in class-path order.

    Raises:
        JarError: when no set has this name.
    """
    lock = _lock()
    if jar_set not in lock["sets"]:
        message = f"There is no jar set called {jar_set!r}; the lock file has {', '.join(lock['sets'])}."
        raise JarError(message)
    return tuple(Jar(name, **lock["jars"][name]) for name in lock["sets"][jar_set]["jars"])


def paths(jar_set: str) -> list[Path]:
    """The jars of a set as files on this machine, in class-path order; what is missing is downloaded first.

    Several processes may ask at once: one downloads, the others wait for it.

    Raises:
        JarError: when a jar cannot be had or fails its checksum.
    """
    cache = cache_directory()
    jars = locked(jar_set)
    if _missing(cache, jars):
        with _exclusive(cache):
            _download(cache, _missing(cache, jars))  # asked again: another process may have been here first
    return [cache / jar.path for jar in jars]


def classpath(jar_set: str) -> str:
    """The jars of a set as one `java -cp` argument. Downloads and raises as `paths` does."""
    return os.pathsep.join(str(path) for path in paths(jar_set))


def maven(repository: Path, **resolver: Any) -> Any:
    """A jgo `MavenContext` that keeps its files below `repository` and honours the user's own jgo configuration.

    Raises:
        JarError: when jgo is not installed.
    """
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        message = "Fetching Kafka's jars needs jgo; install it with \"pip install 'millpond[broker]'\"."
        raise JarError(message) from error
    # A repository the user configured for jgo (a company's mirror) comes first; without one jgo's own default holds.
    own = GlobalSettings.load().repositories
    context = MavenContext(resolver=PythonResolver(**resolver), repo_cache=repository, timeout=60)
    context.remote_repos = {**own, **context.remote_repos}
    return context


@functools.cache
def _lock() -> dict[str, Any]:
    return tomllib.loads(importlib.resources.files(__package__).joinpath(LOCK_FILE).read_text(encoding="utf-8"))


def _missing(cache: Path, jars: Sequence[Jar]) -> list[Jar]:
    """Jars that are not in the cache in full length. Content was verified when they got there."""
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
    """Hold the cache's lock file; the kernel lets go of it even when the process is killed."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / "download.lock").open("w", encoding="utf-8")
    except OSError as error:
        message = (
            f"The cache directory {cache} cannot be written ({error.strerror}); set MILLPOND_CACHE to one that can."
        )
        raise JarError(message) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(cache: Path, jars: Sequence[Jar]) -> None:
    if not jars:
        return
    with (
        tempfile.TemporaryDirectory(prefix="download-", dir=cache) as scratch,
        _progress(jars) as advance,
        concurrent.futures.ThreadPoolExecutor(_PARALLEL, thread_name_prefix="millpond-jars") as pool,
    ):
        context = maven(Path(scratch), progress_callback=lambda _name, _size: contextlib.nullcontext(advance))
        fetched = [pool.submit(_fetch, context, cache, jar) for jar in jars]
        try:
            for future in concurrent.futures.as_completed(fetched):
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _fetch(context: Any, cache: Path, jar: Jar) -> None:
    """Download one jar next to the cache, verify it, and only then move it in."""
    group, artifact, version = jar.coordinate.split(":")
    remote = context.project(group, artifact).at_version(version).artifact()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            file = remote.resolve()
            break
        except Exception as error:
            if remote.cached_path is not None:
                remote.cached_path.unlink(missing_ok=True)  # jgo takes a half-written file for a whole one
            if attempt == _ATTEMPTS:
                message = f"{jar.coordinate} could not be downloaded ({error}); check the network and try again."
                raise JarError(message) from error
    verify(jar, file)
    target = cache / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(file, target)


def verify(jar: Jar, file: Path) -> None:
    """Check a file against the lock file.

    Raises:
        JarError: when its SHA-256 is another one.
    """
    found = sha256(file)
    if found != jar.sha256:
        message = (
            f"{jar.coordinate} has SHA-256 {found}, but {LOCK_FILE} pins {jar.sha256}: the repository answered with"
            " something else than what millpond was built with, so it is not used; try another network or mirror."
        )
        raise JarError(message)


def sha256(file: Path) -> str:
    """SHA-256 of a file in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def _progress(jars: Sequence[Jar]) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts bytes; on a terminal a bar shows them, elsewhere one line says what happens."""
    total = sum(jar.size for jar in jars)
    what = f"Fetching {len(jars)} jars (once, into {cache_directory()})"
    if not sys.stderr.isatty():
        sys.stderr.write(f"{what}, {total / 1e6:.0f} MB\n")
        sys.stderr.flush()
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
