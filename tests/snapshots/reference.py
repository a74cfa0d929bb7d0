"""A snapshot job in plain Python, the reference for the Spark job, for changelogs that fit into memory."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from millpond.snapshots.histories import versions_of
from millpond.snapshots.layouts import StoreKind, StoreLayout, expired_before, metadata, row, time_of
from millpond.snapshots.locations import Location
from millpond.snapshots.manifest import File, Manifest, Part, StoreSnapshot
from millpond.snapshots.sst import write_sst
from millpond.snapshots.versions import file_path, publish

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]] | None]


def newest_rows(
    layout: StoreLayout, partition: int, records: Sequence[Record]
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the rows after replaying the records, ascending by key, and their metadata."""
    if layout.kind is StoreKind.VERSIONED:
        return _versions(layout, partition, records)
    newest: dict[bytes, Record] = {}
    stream_time: int | None = None
    for each in records:
        if each[0] is None:
            continue
        newest[each[0]] = each
        start = time_of(layout, each[0])
        if start is not None:
            stream_time = start if stream_time is None else max(stream_time, start)
    bound = expired_before(layout, stream_time)
    rows = []
    for key, (_, value, timestamp, headers) in newest.items():
        if value is None or (bound is not None and (time_of(layout, key) or 0) < bound):
            continue
        full, stored = row(layout, partition, key, value, timestamp, headers)
        assert stored is not None
        rows.append((full, stored))
    return sorted(rows), metadata(layout, stream_time)


def _versions(
    layout: StoreLayout, partition: int, records: Sequence[Record]
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    by_key: dict[bytes, list[tuple[int, bytes | None]]] = {}
    stream_time = -1
    for key, value, timestamp, _ in records:
        if key is None:
            continue
        if timestamp >= stream_time - layout.retention_ms:
            by_key.setdefault(key, []).append((timestamp, value))
        stream_time = max(stream_time, timestamp)
    rows = []
    for key, own in by_key.items():
        for versioned_key, stored, timestamp in versions_of(layout, key, own, stream_time):
            full, value = row(layout, partition, versioned_key, stored, timestamp, None)
            assert value is not None
            rows.append((full, value))
    return sorted(rows), metadata(layout, stream_time)


def write_part(
    location: Location,
    application: str,
    version: str,
    store: str,
    layout: StoreLayout,
    partition: int,
    records: Sequence[Record],
    *,
    offset: int,
    as_of_ms: int,
    rows_per_file: int = 1_000,
) -> Part:
    """Write the files of one store partition."""
    rows, beside = newest_rows(layout, partition, records)
    files = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, first in enumerate(range(0, len(rows), rows_per_file)):
            local = Path(scratch, f"{number}.sst")
            written = write_sst(rows[first : first + rows_per_file], local)
            path = f"{store}/{partition}-{number}.sst"
            location.put_file(local, file_path(application, version, path))
            files.append(File(path, written.sha256, written.bytes, written.rows))
    return Part(
        partition=partition, offset=offset, as_of_ms=as_of_ms,
        metadata_b64=base64.b64encode(beside).decode(), rows=len(rows),
        bytes=sum(each.bytes for each in files), files=tuple(files),
    )  # fmt: skip


def write_snapshot(
    location: Location,
    application: str,
    version: str,
    stores: Mapping[str, tuple[StoreLayout, str, str, Mapping[int, tuple[Sequence[Record], int]]]],
    *,
    topology: str = "",
    as_of_ms: int,
    rows_per_file: int = 1_000,
) -> Manifest:
    """Write and publish a snapshot.

    Args:
        location: where.
        application: id.
        version: id.
        stores: layout, topic, topic id and by partition the records and the offset after them, by store.
        topology: hash.
        as_of_ms: when the offsets were asked for.
        rows_per_file: the most rows in a file.
    """
    snapshots = tuple(
        StoreSnapshot(
            store=store, layout=layout, topic=topic, topic_id=topic_id, partitions=len(changelogs),
            parts=tuple(
                write_part(
                    location, application, version, store, layout, partition, records, offset=offset, as_of_ms=as_of_ms,
                    rows_per_file=rows_per_file,
                )
                for partition, (records, offset) in changelogs.items()
            ),
        )
        for store, (layout, topic, topic_id, changelogs) in stores.items()
    )  # fmt: skip
    manifest = Manifest(
        application=application, topology=topology, version=version, created_ms=as_of_ms, stores=snapshots
    )
    publish(location, manifest)
    return manifest
