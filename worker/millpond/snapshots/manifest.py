"""The manifest of a snapshot, as JSON: the list of its stores, partitions and files. Pure."""

from __future__ import annotations

import base64
import re
from pathlib import PurePosixPath

import msgspec

from millpond.errors import SnapshotError

from .layouts import StoreLayout

__all__ = ("FORMAT", "File", "Manifest", "Part", "StoreSnapshot", "decode", "encode")

_Bytes = bytes  # a field of that name hides it

FORMAT = 1
"""The format of the manifest and of the files that it names."""

_SHA256 = re.compile("[0-9a-f]{64}")
_MOST = 2**63


class File(msgspec.Struct, frozen=True):
    """One SST file."""

    path: str
    """The path relative to the version's folder, with `/`."""
    sha256: str
    """The checksum, in hexadecimal."""
    bytes: int
    rows: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a store."""

    partition: int
    offset: int
    """The changelog offset to continue from: all records before it are in the rows, none after it."""
    as_of_ms: int
    """When the end offset was requested from the broker, in epoch ms."""
    metadata_b64: str = ""
    """The metadata of the checkpoint in the state file, in base64; see `layouts.metadata`."""
    rows: int = 0
    bytes: int = 0
    """The size of all files."""
    files: tuple[File, ...] = ()
    """The SST files. Keys ascend within each file, and from each file to the next."""

    @property
    def metadata(self) -> _Bytes:
        """The metadata as bytes."""
        return base64.b64decode(self.metadata_b64)


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One store."""

    store: str
    layout: StoreLayout
    topic: str
    """The real name of the changelog topic."""
    topic_id: str
    """The id of the topic; "" where the brokers do not report it."""
    partitions: int
    """The number of partitions of the topic."""
    parts: tuple[Part, ...]

    def part(self, partition: int) -> Part | None:
        """Return the part of one partition; None if the snapshot does not have it."""
        return next((each for each in self.parts if each.partition == partition), None)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an application's state."""

    format: int = FORMAT
    application: str
    """The application id."""
    topology: str
    """The hash of the topology whose state it is."""
    version: str
    """The id of the version; see `versions.new_version`."""
    created_ms: int
    """The creation time in epoch ms."""
    stores: tuple[StoreSnapshot, ...]

    def store(self, name: str) -> StoreSnapshot | None:
        """Return one store; None if the snapshot does not have it."""
        return next((each for each in self.stores if each.store == name), None)

    @property
    def files(self) -> list[File]:
        """All files of the version."""
        return [file for store in self.stores for part in store.parts for file in part.files]


class _Marker(msgspec.Struct):
    """The one field that manifests of every format have."""

    format: int


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes) -> Manifest:
    """Return the checked manifest from JSON.

    Raises:
        SnapshotError: the bytes are not a manifest, or are one of a newer format.
    """
    try:
        found = msgspec.json.decode(data, type=_Marker).format
        if found > FORMAT:
            raise SnapshotError(
                f"the snapshot's manifest has format {found}, and this version of millpond reads up to {FORMAT}: "
                "use a newer millpond, or make a new snapshot"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
        for each in manifest.stores:
            for part in each.parts:
                base64.b64decode(part.metadata_b64, validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot's manifest cannot be read ({error}): make a new snapshot") from error
    _check_files(manifest)
    _check_numbers(manifest)
    return manifest


def _check_files(manifest: Manifest) -> None:
    for file in manifest.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in file.path:
            raise SnapshotError(
                f"the snapshot's manifest names a file outside of its folder ('{file.path}'): make a new snapshot"
            )
        # Workers use it as the name of their copy.
        if not _SHA256.fullmatch(file.sha256):
            raise SnapshotError(f"the snapshot's manifest has no SHA-256 of '{file.path}': make a new snapshot")


def _check_numbers(manifest: Manifest) -> None:
    parts = [part for store in manifest.stores for part in store.parts]
    numbers = [number for each in parts for number in (each.offset, each.as_of_ms, each.bytes, each.rows)]
    numbers += [number for each in manifest.files for number in (each.bytes, each.rows)]
    if not all(0 <= each < _MOST for each in numbers):
        raise SnapshotError("the snapshot's manifest has a number that is out of range: make a new snapshot")
