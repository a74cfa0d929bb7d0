"""The versions of an application's tables in a location, and the index that makes a version complete.

    <application>/catalog/versions/<version>.json         the index, written last
    <application>/catalog/<version>/<store>/              an Iceberg table whose current snapshot is that version

Each version's folder has its own copy of the tables' metadata, so a table that is read there
stays at that version, whatever is written meanwhile. Versions have the ids of the snapshots that they were written with
(`millpond.snapshots.versions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from millpond.errors import SnapshotError
from millpond.snapshots.locations import Location
from millpond.snapshots.versions import created_ms

__all__ = (
    "FORMAT",
    "CatalogVersion",
    "StoreTable",
    "publish",
    "read",
    "remove",
    "retain",
    "sweep",
    "table_path",
    "table_uri",
    "versions",
)

FORMAT = 1
"""The format of the index."""

_FOLDER = "catalog"
_VERSIONS = "versions"
_SUFFIX = ".json"


class StoreTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of one store in a version."""

    store: str
    snapshot_id: int
    """The id of the table's Iceberg snapshot."""
    changelog: str
    """The real name of the changelog topic."""
    offsets: dict[int, int]
    """Partition -> changelog offset: all records before it are in the table, none after it."""
    rows: int
    bytes: int
    """The size of the table's data files."""
    undecoded_keys: int = 0
    """The number of rows whose key is kept as bytes, since the serde cannot decode it."""
    undecoded_values: int = 0
    """The number of rows whose value is kept as bytes, since the serde cannot decode it."""
    undecoded_reason: str | None = None
    """The reason why all keys and values of the store are kept as bytes; None when they are decoded."""


class CatalogVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of all stores at one moment."""

    format: int = FORMAT
    application: str
    """The application id."""
    version: str
    """The id of the snapshot that the tables were written with."""
    as_of_ms: int
    """When the offsets were read from the brokers, in epoch ms."""
    tables: tuple[StoreTable, ...]
    """The tables, ordered by store name."""

    def table(self, store: str) -> StoreTable:
        """Return the table of a store.

        Raises:
            SnapshotError: the version has no table of that store.
        """
        for each in self.tables:
            if each.store == store:
                return each
        known = ", ".join(f"'{each.store}'" for each in self.tables)
        raise SnapshotError(f"version {self.version} has no store '{store}'; it has {known}.")

    @property
    def offsets(self) -> Mapping[str, Mapping[int, int]]:
        """Store -> partition -> changelog offset."""
        return {each.store: each.offsets for each in self.tables}


class _Marker(msgspec.Struct):
    """The one field that indexes of every format have."""

    format: int


def table_path(application: str, version: str, store: str = "") -> str:
    """Return a version's folder, or the folder of a store's table in it, relative to the location."""
    return f"{application}/{_FOLDER}/{version}" + (f"/{store}" if store else "")


def table_uri(location: Location, application: str, version: str, store: str) -> str:
    """Return the URI of a store's table for Iceberg's libraries."""
    uri = location.uri
    if not uri.startswith("s3://"):
        # Iceberg's libraries do not decode percent signs.
        path = unquote(urlsplit(uri).path) if uri.startswith("file://") else str(Path(uri).absolute())
        uri = f"file://{path}"
    return f"{uri.rstrip('/')}/{table_path(application, version, store)}"


def versions(location: Location, application: str) -> list[str]:
    """Return the complete versions, newest first.

    Raises:
        SnapshotError: the location cannot be read.
    """
    names = [path.rpartition("/")[2] for path, _ in location.list(_index_folder(application))]
    found = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted((each for each in found if created_ms(each) is not None), reverse=True)


def read(location: Location, application: str, version: str) -> CatalogVersion:
    """Return the index of a version.

    Raises:
        SnapshotError: the index is missing or damaged, or of a newer format.
    """
    data = location.get(_index_path(application, version))
    try:
        found = msgspec.json.decode(data, type=_Marker).format
        if found > FORMAT:
            raise SnapshotError(
                f"the index of version {version} has format {found}, and this version of millpond reads up to "
                f"{FORMAT}: use a newer millpond."
            )
        return msgspec.json.decode(data, type=CatalogVersion)
    except msgspec.DecodeError as error:
        raise SnapshotError(f"the index of version {version} cannot be read ({error}): make a new snapshot.") from error


def publish(location: Location, index: CatalogVersion) -> None:
    """Write the index, which makes the version complete.

    Raises:
        SnapshotError: the location cannot be written.
    """
    data = msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
    location.put(_index_path(index.application, index.version), data)


def remove(location: Location, application: str, version: str) -> None:
    """Delete a version, its index first.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    location.delete([_index_path(application, version)])
    location.delete([path for path, _ in location.list(table_path(application, version))])


def retain(location: Location, application: str, keep: int) -> list[str]:
    """Delete all versions except the newest ones; return the deleted versions.

    Args:
        location: the location of the tables.
        application: application id.
        keep: how many versions to keep, at least 1.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    expired = versions(location, application)[keep:]
    for version in expired:
        remove(location, application, version)
    return expired


def sweep(location: Location, application: str, *, older_than_ms: int, now_ms: int) -> list[str]:
    """Delete the tables of incomplete versions, which failed jobs left; return their versions.

    Args:
        location: the location of the tables.
        application: application id.
        older_than_ms: younger tables are kept: their job may still run.
        now_ms: epoch ms.

    Raises:
        SnapshotError: the location cannot be changed.
    """
    complete = set(versions(location, application))
    begun = {path.split("/")[2] for path, _ in location.list(f"{application}/{_FOLDER}") if path.count("/") > 2}
    removed = []
    for version in sorted(begun - complete):
        begun_ms = created_ms(version)
        if begun_ms is not None and now_ms - begun_ms >= older_than_ms:
            remove(location, application, version)
            removed.append(version)
    return removed


def _index_folder(application: str) -> str:
    return f"{application}/{_FOLDER}/{_VERSIONS}"


def _index_path(application: str, version: str) -> str:
    return f"{_index_folder(application)}/{version}{_SUFFIX}"
