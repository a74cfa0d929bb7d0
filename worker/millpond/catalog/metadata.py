"""Complete the metadata of an Iceberg table with facts that its writer did not know at its commit. Pure.

The writer's metadata has one snapshot for each version. Added are a tag for the new snapshot, and in its summary the
version, its time and its offsets. Removed are the snapshots of deleted versions, and the list of earlier metadata
files, which are in other versions' folders.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from .indexes import CatalogVersion, StoreTable

__all__ = ("APPLICATION", "AS_OF", "CHANGELOG", "OFFSETS", "UNDECODED_KEYS", "UNDECODED_VALUES", "VERSION", "completed")

APPLICATION = "millpond.application"
VERSION = "millpond.version"
AS_OF = "millpond.as-of-ms"
CHANGELOG = "millpond.changelog"
OFFSETS = "millpond.offsets"
UNDECODED_KEYS = "millpond.undecoded-keys"
UNDECODED_VALUES = "millpond.undecoded-values"


def completed(
    metadata: dict[str, Any], index: CatalogVersion, table: StoreTable, kept: Collection[str]
) -> dict[str, Any]:
    """Return the final metadata of a store's table, for the folder of a version.

    Args:
        metadata: the metadata that the writer left; its current snapshot is the version's.
        index: the index of the version.
        table: the store's table in the index.
        kept: earlier versions that still exist; the snapshots of all others are removed.
    """
    current = metadata["current-snapshot-id"]
    added = {
        APPLICATION: index.application,
        VERSION: index.version,
        AS_OF: str(index.as_of_ms),
        CHANGELOG: table.changelog,
        OFFSETS: msgspec.json.encode({str(partition): offset for partition, offset in table.offsets.items()}).decode(),
        UNDECODED_KEYS: str(table.undecoded_keys),
        UNDECODED_VALUES: str(table.undecoded_values),
    }
    snapshots = []
    for snapshot in metadata["snapshots"]:
        if snapshot["snapshot-id"] == current:
            # Its parent may be removed, and a table that is replaced does not depend on it.
            whole = {name: value for name, value in snapshot.items() if name != "parent-snapshot-id"}
            snapshots.append({**whole, "summary": {**snapshot["summary"], **added}})
        elif snapshot["summary"].get(VERSION) in kept:
            snapshots.append(snapshot)
    ids = {snapshot["snapshot-id"] for snapshot in snapshots}
    refs = {name: ref for name, ref in metadata.get("refs", {}).items() if ref["snapshot-id"] in ids}
    return {
        **metadata,
        "snapshots": snapshots,
        "snapshot-log": [entry for entry in metadata.get("snapshot-log", []) if entry["snapshot-id"] in ids],
        "metadata-log": [],
        "refs": {**refs, index.version: {"snapshot-id": current, "type": "tag"}},
    }
