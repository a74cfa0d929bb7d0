"""The locations of snapshots: a directory, or a bucket of an S3-compatible object store."""

from __future__ import annotations

import builtins
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from millpond.errors import SnapshotError

from .local_copy import PARTIAL, LocalCopy

__all__ = ("MAX_BYTES", "LocalDirectory", "Location", "OnBytes", "open_location", "too_large")

OnBytes = Callable[[int], None]
"""Called with the number of bytes that have arrived since the last call."""

MAX_BYTES = 64 << 20
"""The most bytes that `get` returns. A manifest has some 300 for each file of 64 MB."""

_CHUNK = 1 << 20


class Location(Protocol):
    """Files by path, which is relative to the location's URI and has `/` between its parts. Thread-safe.

    Every method raises `SnapshotError` when the location cannot be used; the message has no credentials.

    Attributes:
        uri: the URI in its original form.
    """

    uri: str

    def put_file(self, local: Path, path: str) -> None:
        """Store a local file; readers see the whole file or none."""

    def put(self, path: str, data: bytes) -> None:
        """Store bytes; readers see all of them or nothing."""

    def get(self, path: str, max_bytes: int = MAX_BYTES) -> bytes:
        """Return a whole file; raise an error for a file of more than `max_bytes` bytes."""

    def fetch(self, path: str, local: Path, on_bytes: OnBytes | None = None) -> None:
        """Copy a file to a local path; bytes that an earlier, interrupted call has copied are not copied again.

        An exception that `on_bytes` raises ends the copying and propagates.
        """

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        """Return path and size in bytes of all files below a folder, ordered by path."""

    def folders(self, prefix: str) -> builtins.list[str]:
        """Return the names of the folders in a folder, in order. The time grows with the folders, not the files."""

    def exists(self, path: str) -> bool:
        """Return whether a file exists at this path."""

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing files are ignored."""


def open_location(uri: str, credentials_dir: Path | str | None = None) -> Location:
    """Return the location for a URI.

    Args:
        uri: ``s3://bucket/prefix``, ``file:///directory``, or a directory's path.
        credentials_dir: a directory with files that are named like the environment variables ``AWS_ACCESS_KEY_ID``,
            ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, ``AWS_ENDPOINT_URL`` and so on, as a mounted Secret has them.
            They override the environment.

    Raises:
        SnapshotError: the URI is of another kind, or a library or a setting is missing.
    """
    parts = urlsplit(uri)
    if parts.scheme == "s3":
        if "@" in parts.netloc:  # the message does not repeat the URI: it has a secret
            raise SnapshotError(
                "the location has credentials in it: use s3://bucket/prefix, and set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY"
            )
        from .s3 import Bucket

        return Bucket(uri, parts.netloc, parts.path.strip("/"), credentials_dir)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise SnapshotError(
                f"the location '{uri}' names a host: write file:///path for a local or shared directory"
            )
        return LocalDirectory(uri, Path(unquote(parts.path)))
    if "://" in uri:
        raise SnapshotError(f"the location '{uri}' is of an unknown kind: use s3://bucket/prefix or file:///path")
    if not uri:
        raise SnapshotError("the location is empty: use s3://bucket/prefix or file:///path")
    try:
        return LocalDirectory(uri, Path(uri).expanduser())
    except RuntimeError as error:
        raise SnapshotError(
            f"the location '{uri}' names the home directory of a user that this machine does not have: write the whole "
            "path"
        ) from error


def too_large(path: str, uri: str, size: int, max_bytes: int) -> SnapshotError:
    """Return the error for a file that is too large to read; sizes in bytes."""
    return SnapshotError(
        f"'{path}' in '{uri}' is damaged: it has {size} bytes, and the limit is {max_bytes}; make a new snapshot"
    )


class LocalDirectory:
    """A local or shared directory, created by the first `put`."""

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self._root = root.absolute()

    def put_file(self, local: Path, path: str) -> None:
        """See `Location`."""
        self._write(path, lambda target: shutil.copyfile(local, target))

    def put(self, path: str, data: bytes) -> None:
        """See `Location`."""
        self._write(path, lambda target: Path(target).write_bytes(data))

    def get(self, path: str, max_bytes: int = MAX_BYTES) -> bytes:
        """See `Location`."""
        try:
            with (self._root / path).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > max_bytes:
                    raise too_large(path, self.uri, size, max_bytes)
                return file.read()
        except OSError as error:
            raise self._failed("read", path, error) from error

    def fetch(self, path: str, local: Path, on_bytes: OnBytes | None = None) -> None:
        """See `Location`."""
        try:
            with (self._root / path).open("rb") as source, LocalCopy(local) as copy:
                at = copy.begin(os.fstat(source.fileno()).st_size)
                source.seek(at)
                while chunk := source.read(_CHUNK):
                    copy.add(chunk)
                    if on_bytes is not None:
                        on_bytes(len(chunk))
                copy.finish()
        except OSError as error:
            raise self._failed("read", path, error) from error

    def list(self, prefix: str = "") -> list[tuple[str, int]]:
        """See `Location`."""
        folder = self._root / prefix
        found: list[tuple[str, int]] = []

        def on_error(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        try:
            for at, _, names in os.walk(folder, onerror=on_error):
                for name in names:
                    file = Path(at, name)
                    try:
                        found.append((file.relative_to(self._root).as_posix(), file.stat().st_size))
                    except FileNotFoundError:
                        continue  # deleted meanwhile
        except OSError as error:
            raise self._failed("list", prefix, error) from error
        return sorted(found)

    def folders(self, prefix: str) -> builtins.list[str]:
        """See `Location`."""
        try:
            with os.scandir(self._root / prefix) as entries:
                return sorted(each.name for each in entries if each.is_dir())
        except FileNotFoundError:
            return []
        except OSError as error:
            if isinstance(error, NotADirectoryError) and self._root.is_dir():
                return []
            raise self._failed("list", prefix, error) from error

    def exists(self, path: str) -> bool:
        """See `Location`."""
        try:
            return (self._root / path).is_file()
        except OSError as error:
            raise self._failed("read", path, error) from error

    def delete(self, paths: Iterable[str]) -> None:
        """See `Location`. Directories that become empty are deleted, too."""
        for path in paths:
            file = self._root / path
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise self._failed("delete", path, error) from error
            for above in file.parents:
                if above == self._root:
                    break
                try:
                    above.rmdir()
                except OSError:
                    break  # not empty

    def _write(self, path: str, write: Callable[[str], object]) -> None:
        target = self._root / path
        temporary = ""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".", suffix=PARTIAL, dir=target.parent)
            os.close(handle)
            write(temporary)
            Path(temporary).chmod(0o644)
            with Path(temporary).open("rb") as file:
                os.fsync(file.fileno())
            Path(temporary).replace(target)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise self._failed("write", path, error) from error

    def _failed(self, action: str, path: str, error: OSError) -> SnapshotError:
        return SnapshotError(
            f"cannot {action} '{path}' in '{self.uri}': {error.strerror or error}; "
            "check the path, its rights and its free space"
        )
