"""What a snapshot consists of: its manifest, as JSON. Pure."""

from __future__ import annotations

import base64
import re
from pathlib import PurePosixPath

import msgspec

from millpond.errors import SnapshotError

from .rows import StoreLayout

__all__ = ("FORMAT", "File", "Manifest", "Part", "StoreSnapshot", "decode", "encode")

_Bytes = bytes  # a field of that name hides it

FORMAT = 1
"""Of the manifest and of the files that it names."""

_SHA256 = re.compile("[0-9a-f]{64}")
_MOST = 2**63


class File(msgspec.Struct, frozen=True):
    """One SST file."""

    path: str
    """Relative to the version's folder, with `/`."""
    sha256: str
    """Hexadecimal."""
    bytes: int
    rows: int


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a store."""

    partition: int
    offset: int
    """The changelog offset to continue from: all records before it are in the rows, none after it."""
    as_of_ms: int
    """When the broker was asked for that end of the changelog, in epoch ms."""
    metadata_b64: str = ""
    """What stands beside the offset in the state file, in base64; see `rows.metadata`."""
    rows: int = 0
    bytes: int = 0
    """Of all files."""
    files: tuple[File, ...] = ()
    """Their keys ascend within each file, and from each file to the next."""

    @property
    def metadata(self) -> _Bytes:
        """`metadata_b64` as bytes."""
        return base64.b64decode(self.metadata_b64)


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One store."""

    store: str
    layout: StoreLayout
    topic: str
    """Real name of the changelog topic."""
    topic_id: str
    """Id of the topic; "" where the brokers did not tell."""
    partitions: int
    """How many the topic has."""
    parts: tuple[Part, ...]

    def part(self, partition: int) -> Part | None:
        """Return the part of one partition, None when the snapshot does not have it."""
        return next((each for each in self.parts if each.partition == partition), None)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an application's state."""

    format: int = FORMAT
    application: str
    """Application id."""
    topology: str
    """Hash of the topology whose state it is."""
    version: str
    """See `versions.new_version`."""
    created_ms: int
    """Epoch ms."""
    stores: tuple[StoreSnapshot, ...]

    def store(self, name: str) -> StoreSnapshot | None:
        """Return one store, None when the snapshot does not have it."""
        return next((each for each in self.stores if each.store == name), None)

    @property
    def files(self) -> list[File]:
        """All files of the version."""
        return [file for store in self.stores for part in store.parts for file in part.files]


class _Marker(msgspec.Struct):
    """What manifests of all formats have."""

    format: int


def encode(manifest: Manifest) -> bytes:
    """Return the manifest as JSON, indented for people."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(data: bytes) -> Manifest:
    """Return the manifest that JSON stands for.

    Raises:
        SnapshotError: the bytes are no manifest, or one of a newer format.
    """
    try:
        found = msgspec.json.decode(data, type=_Marker).format
        if found > FORMAT:
            raise SnapshotError(
                f"the snapshot's manifest has format {found}, and this version of millpond reads up to {FORMAT}: use a newer "
                "millpond, or make a new snapshot"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
        for each in manifest.stores:
            for part in each.parts:
                base64.b64decode(part.metadata_b64, validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SnapshotError(f"the snapshot's manifest cannot be read ({error}): make a new snapshot") from error
    for file in manifest.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in file.path:
            raise SnapshotError(
                f"the snapshot's manifest names a file outside of its folder ('{file.path}'): make a new snapshot"
            )
        # Workers name the file by it.
        if not _SHA256.fullmatch(file.sha256):
            raise SnapshotError(f"the snapshot's manifest has no SHA-256 of '{file.path}': make a new snapshot")
    parts = [part for store in manifest.stores for part in store.parts]
    numbers = [number for each in parts for number in (each.offset, each.as_of_ms, each.bytes, each.rows)]
    numbers += [number for each in manifest.files for number in (each.bytes, each.rows)]
    if not all(0 <= each < _MOST for each in numbers):
        raise SnapshotError("the snapshot's manifest has a number that cannot be: make a new snapshot")
    return manifest
