"""Read the tables of a version with pyiceberg."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.errors import SnapshotError
from millpond.snapshots import libraries
from millpond.snapshots.locations import Location

from .file_io import file_properties
from .indexes import table_uri

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("open_table", "read_rows", "require_libraries")

_LIBRARIES = ("pyiceberg", "duckdb", "pyarrow")


def require_libraries() -> None:
    """Check that the libraries that read tables are installed, before modules that need them are imported.

    Raises:
        SnapshotError: a library is not installed.
    """
    libraries.require_libraries(_LIBRARIES, "reading tables", "catalog")


def open_table(location: Location, credentials_dir: Path | None, application: str, version: str, store: str) -> Any:
    """Return pyiceberg's table of a store, whose current snapshot is the version's.

    Args:
        location: the location of the tables.
        credentials_dir: see `open_location`.
        application: application id.
        version: a complete version.
        store: a store of the version.

    Raises:
        SnapshotError: the table cannot be read.
    """
    from pyiceberg.table import StaticTable

    uri = table_uri(location, application, version, store)
    try:
        return StaticTable.from_metadata(
            f"{uri}/metadata/v1.metadata.json", file_properties(location.uri, credentials_dir)
        )
    except SnapshotError:
        raise
    except Exception as error:  # of pyiceberg, pyarrow or the object store
        raise _unreadable(store, version, error) from error


def read_rows(  # noqa: PLR0913  # where the file is, and what to read
    location: Location,
    credentials_dir: Path | None,
    application: str,
    version: str,
    store: str,
    limit: int | None = None,
) -> pa.Table:
    """Return the rows of a store's table, in memory.

    Args:
        location: see `open_table`, also for the next four.
        credentials_dir: …
        application: …
        version: …
        store: …
        limit: the maximum number of rows; None for all.

    Raises:
        SnapshotError: the table cannot be read.
    """
    table = open_table(location, credentials_dir, application, version, store)
    try:
        return table.scan(limit=limit).to_arrow()
    except Exception as error:  # of pyiceberg, pyarrow or the object store
        raise _unreadable(store, version, error) from error


def _unreadable(store: str, version: str, error: Exception) -> SnapshotError:
    cause = (str(error).strip() or type(error).__name__).splitlines()[0]
    return SnapshotError(
        f"the table of store '{store}' in version {version} cannot be read ({cause}): check the location, or choose "
        "another version."
    )
