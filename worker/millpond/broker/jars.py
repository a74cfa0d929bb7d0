"""The Java archives that millpond needs: pinned in `jars.lock.toml`, downloaded by jgo, cached per user.

The lock file lists every jar, so no dependency is resolved at run time. A jar that is not in the cache is downloaded,
verified against its SHA-256 and then moved into the cache. So the cache contains only verified files.
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
_PARALLEL = 6  # downloads at the same time
_CHUNK = 1 << 20


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
    """Download one jar next to the cache, verify it, and then move it into the cache."""
    group, artifact, version = jar.coordinate.split(":")
    remote = context.project(group, artifact).at_version(version).artifact()
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            file = remote.resolve()
            break
        except Exception as error:
            if remote.cached_path is not None:
                remote.cached_path.unlink(missing_ok=True)  # jgo would use a partly written file as complete
            if attempt == _ATTEMPTS:
                message = f"{jar.coordinate} could not be downloaded ({error}); check the network and retry."
                raise JarError(message) from error
    verify(jar, file)
    target = cache / jar.path
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(file, target)


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


@contextlib.contextmanager
def _progress(jars: Sequence[Jar]) -> Iterator[Callable[[int], None]]:
    """Yield a function that reports downloaded bytes: as a progress bar on a terminal, as one line elsewhere."""
    total = sum(jar.size for jar in jars)
    what = f"Downloading {len(jars)} jars (only once, to {cache_directory()})"
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
