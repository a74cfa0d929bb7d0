"""Choose the version for a moment: by the version's id, a time, or offsets (the option `--as-of`). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from millpond.errors import SnapshotError
from millpond.snapshots.versions import created_ms
from millpond.times import parse_epoch_ms

from .indexes import CatalogVersion

__all__ = ("choose", "parse_offsets", "parse_time")

_OFFSET = re.compile(r"(?:(?P<store>[\w.-]+):)?(?P<partition>\d+)=(?P<offset>\d+)")

Offsets = Mapping[tuple[str | None, int], int]
"""Store (None where it is not named) and partition -> offset."""


def parse_time(text: str) -> int | None:
    """Return the epoch ms of an ISO 8601 time or date, in UTC if it names no zone; None for other text."""
    try:
        return parse_epoch_ms(text)
    except ValueError:
        return None


def parse_offsets(text: str) -> Offsets | None:
    """Return the offsets in a list ``[STORE:]PARTITION=OFFSET,…``; None for other text."""
    found: dict[tuple[str | None, int], int] = {}
    for part in text.split(","):
        match = _OFFSET.fullmatch(part.strip())
        if match is None:
            return None
        found[match["store"], int(match["partition"])] = int(match["offset"])
    return found


def choose(
    versions: Sequence[str], read: Callable[[str], CatalogVersion], as_of: str | None, store: str | None = None
) -> CatalogVersion:
    """Return the version for a moment.

    Args:
        versions: all versions, newest first.
        read: returns the index of a version.
        as_of: a version; or a time, for the newest version that is not later; or offsets, for the newest version that
            has no record at or after them. None for the newest version.
        store: the store that offsets without a store belong to.

    Raises:
        SnapshotError: no version matches, or `as_of` has none of these forms.
    """
    if not versions:
        raise SnapshotError(
            "the location has no tables yet: make a snapshot with --catalog, or check --location and --application-id."
        )
    if as_of is None:
        return read(versions[0])
    if as_of in versions:
        return read(as_of)
    if created_ms(as_of) is not None:
        raise SnapshotError(f"version {as_of} does not exist: 'millpond catalog list' shows the existing versions.")
    # Offsets first: a list of offsets is never a time.
    offsets = parse_offsets(as_of)
    if offsets is not None:
        return _by_offsets(versions, read, offsets, store, as_of)
    time_ms = parse_time(as_of)
    if time_ms is None:
        raise SnapshotError(
            f"'{as_of}' is not a moment: write a version, a time such as 2026-01-31T12:00:00, or offsets such as "
            "0=120,1=80."
        )
    for version in versions:
        found = read(version)
        if found.as_of_ms <= time_ms:
            return found
    raise SnapshotError(f"no version is as old as {as_of}: the oldest is {versions[-1]}.")


def _by_offsets(
    versions: Sequence[str], read: Callable[[str], CatalogVersion], wanted: Offsets, store: str | None, as_of: str
) -> CatalogVersion:
    for version in versions:
        found = read(version)
        if all(_offset(found, named or store, partition) <= offset for (named, partition), offset in wanted.items()):
            return found
    raise SnapshotError(f"no version ends at or before {as_of}: the oldest is {versions[-1]}.")


def _offset(version: CatalogVersion, store: str | None, partition: int) -> int:
    if store is None:
        if len(version.tables) > 1:
            raise SnapshotError("the version has several stores: name the store of each offset, as in counts:0=120.")
        store = version.tables[0].store
    offsets = version.table(store).offsets
    if partition not in offsets:
        raise SnapshotError(f"store '{store}' has no partition {partition}: it has {len(offsets)}, from 0.")
    return offsets[partition]
