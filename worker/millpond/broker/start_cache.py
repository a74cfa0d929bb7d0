"""Cache what every start of a broker repeats: the classes it loads, and the metadata of an empty data directory.

A start spends most of its time on loading some 8,000 classes from jars. Java can map them from an archive instead (class
data sharing). `python -m millpond.broker` writes the archive by running a broker once; without it, brokers start more slowly
and nothing else changes. A first start also runs Kafka's storage tool, which writes the same two small files each time: they are copied
from the first data directory that was formatted with the same jars.
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
    """Return where the class archive of this Java and these jars lies, whether it exists or not."""
    binary = java.stat()
    return _directory() / f"classes-{_digest(str(java), str(binary.st_size), str(binary.st_mtime_ns), classpath)}.jsa"


def restore_formatted(data: Path, classpath: str) -> bool:
    """Copy the metadata of an empty data directory to `data`; return False when none can be had."""
    kept = _formatted(classpath)
    if not kept.is_dir():
        return False
    data.mkdir(parents=True, exist_ok=True)
    try:
        for name in reversed(_FORMATTED):  # the one that says that all is there comes last
            shutil.copyfile(kept / name, data / name)
    except OSError:  # another user's, or gone meanwhile: the caller formats it
        for name in _FORMATTED:
            (data / name).unlink(missing_ok=True)
        return False
    return True


def keep_formatted(data: Path, classpath: str) -> None:
    """Keep the metadata of a data directory that was just formatted. What cannot be kept is formatted again next time."""
    kept = _formatted(classpath)
    if kept.exists() or sorted(each.name for each in data.iterdir()) != sorted(_FORMATTED):
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="formatted-", dir=kept.parent))
        made.chmod(0o755)  # other users may share the cache
        for name in _FORMATTED:
            shutil.copyfile(data / name, made / name)
        try:
            made.rename(kept)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    except OSError:
        return


@contextlib.contextmanager
def new_class_archive(java: Path, classpath: str) -> Iterator[list[str]]:
    """Write the class archive from what the block runs: a broker with the options given here, ended in order.

    Yields:
        options for `java`; none when the archive is there already.
    """
    archive = class_archive(java, classpath)
    if archive.exists():
        yield []
        return
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        directory = tempfile.TemporaryDirectory(prefix="classes-", dir=archive.parent)
    except OSError:  # a cache that others fill: brokers start without an archive
        yield []
        return
    with directory as place:
        made = Path(place) / archive.name
        yield [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if made.exists():  # a Java runtime without an archive of its own cannot write one
            made.replace(archive)


def _directory() -> Path:
    return jars.cache_directory() / "broker"


def _formatted(classpath: str) -> Path:
    return _directory() / f"formatted-{_digest(classpath)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
