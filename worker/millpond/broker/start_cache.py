"""A cache for faster starts of the broker: an archive of its classes, and the metadata of an empty data directory.

A start spends most of its time loading some 8,000 classes from jars. Java can map them from an archive instead (class
data sharing). `python -m millpond.broker` writes the archive by running a broker once; without it, brokers only start
more slowly. The first start of a data directory also runs Kafka's storage tool, which always writes the same two small
files: they are copied from the first data directory that was formatted with the same jars.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import jars

__all__ = ("class_archive", "keep_formatted", "new_class_archive", "restore_formatted")

_FORMATTED = ("meta.properties", "bootstrap.checkpoint")


def class_archive(java: Path, classpath: str) -> Path:
    """Return the path of the class archive of this Java and these jars; the file may not exist."""
    binary = java.stat()
    return _directory() / f"classes-{_digest(str(java), str(binary.st_size), str(binary.st_mtime_ns), classpath)}.jsa"


def restore_formatted(data: Path, classpath: str) -> bool:
    """Copy the metadata of an empty data directory to `data`; return False if it is not in the cache."""
    kept = _formatted(classpath)
    if not kept.is_dir() or _damaged(kept):
        return False
    data.mkdir(parents=True, exist_ok=True)
    try:
        for name in reversed(_FORMATTED):  # meta.properties, which marks the directory as formatted, comes last
            shutil.copyfile(kept / name, data / name)
    except OSError:  # not readable, or removed meanwhile: the caller formats it
        for name in _FORMATTED:
            (data / name).unlink(missing_ok=True)
        return False
    return True


def _damaged(kept: Path) -> bool:
    """Remove the cached metadata, and return True, if it is damaged, as after a power failure."""
    try:
        if all(any((kept / name).read_bytes()) for name in _FORMATTED):  # neither empty nor of zeros only
            return False
    except OSError:
        pass
    shutil.rmtree(kept, ignore_errors=True)
    return True


def keep_formatted(data: Path, classpath: str) -> None:
    """Copy the metadata of a newly formatted data directory to the cache, if the cache is writable."""
    kept = _formatted(classpath)
    if kept.exists() or sorted(each.name for each in data.iterdir()) != sorted(_FORMATTED):
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix="formatted-", dir=kept.parent))
        new.chmod(0o755)  # other users may share the cache
        for name in _FORMATTED:
            shutil.copyfile(data / name, new / name)
        try:
            new.rename(kept)
        except OSError:  # another process was faster
            shutil.rmtree(new)
    except OSError:
        return


@contextlib.contextmanager
def new_class_archive(java: Path, classpath: str) -> Iterator[list[str]]:
    """Yield Java options with which a broker writes the class archive; the block must run it and stop it gracefully.

    Yields:
        options for `java`; an empty list if the archive exists.
    """
    archive = class_archive(java, classpath)
    if archive.exists():
        yield []
        return
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent)
    except OSError:  # a read-only cache: brokers start without an archive
        yield []
        return
    with directory as temporary:
        new = Path(temporary) / archive.name
        yield [f"-XX:ArchiveClassesAtExit={new}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if new.exists():  # a Java runtime without its default archive cannot write one
            new.replace(archive)


def _directory() -> Path:
    return jars.cache_directory() / "broker"


def _formatted(classpath: str) -> Path:
    return _directory() / f"formatted-{_digest(classpath)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
