"""Comparison of all store partitions of some sources with a snapshot, while the application runs.

A snapshot and a worker's rows are at two offsets of the changelog. The changes committed in between are applied to the
older rows; then both must be equal, row by row. A worker's uncommitted rows are not in its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.restoring.reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge
from millpond.snapshots.layouts import StoreKind, StoreLayout, expired_before, time_of
from millpond.snapshots.manifest import StoreSnapshot
from millpond.state.provenance import Provenance

from .comparing import Change, Comparison, apply, compare, split_changes
from .snapshot import SnapshotSource
from .sources import HeldStore, NotReadable, Row, RowSource, StoreRows
from .tails import Changelogs, Tail
from .version_rows import VersionsOf, accepted_puts, live_rows

__all__ = ("Checked", "verify")


@dataclass(frozen=True)
class Checked:
    """The result of one store partition of one source."""

    source: str
    """Name of the source; empty if no source has the partition."""
    held: HeldStore
    comparison: Comparison | None = None
    """None if the partition was not compared."""
    reason: str = ""
    """Why the partition was not compared, as a clause."""


def verify(  # noqa: PLR0913 - keyword options after its three inputs
    snapshot: SnapshotSource,
    sources: Sequence[RowSource],
    changelogs: Changelogs,
    *,
    stores: Iterable[str] | None = None,
    examples: int = 10,
    now_ms: Callable[[], int],
) -> Iterator[Checked]:
    """Compare the store partitions of some sources with a snapshot.

    Args:
        snapshot: the snapshot version.
        sources: workers or state directories.
        changelogs: the changelogs of the application.
        stores: the stores to compare; None for all.
        examples: the number of differences to keep for each store partition.
        now_ms: the wall-clock time, in epoch ms.

    Yields:
        A result for each store partition of each source, and for each of the snapshot that no source has.

    Raises:
        BrokerError: the brokers do not answer.
        MillpondError: a source cannot be read at all.
    """
    chosen = None if stores is None else frozenset(stores)
    holders_by_partition: dict[tuple[str, int], list[tuple[RowSource, HeldStore]]] = {
        (each.store, each.partition): [] for each in snapshot.held()
    }
    for source in sources:
        for each in source.held():
            holders_by_partition.setdefault((each.store, each.partition), []).append((source, each))
    manifest = snapshot.manifest
    comparer = _Comparer(snapshot, changelogs, examples, now_ms)
    partitions = [Partition(store.topic, part.partition) for store in manifest.stores for part in store.parts]
    logs = changelogs.logs({store.topic for store in manifest.stores}, partitions)
    for (name, number), holders in sorted(holders_by_partition.items(), key=lambda each: each[0]):
        if chosen is not None and name not in chosen:
            continue
        store = manifest.store(name)
        if store is not None and store.layout.is_global:
            where = [(source.name, held) for source, held in holders] or [("", HeldStore(name, number, "", None))]
            for source_name, held in where:
                yield Checked(source_name, held, reason="global stores are not compared")
        elif store is None or store.part(number) is None:
            for source, held in holders:
                yield Checked(source.name, held, reason="the snapshot does not have this partition")
        elif not holders:
            yield Checked("", HeldStore(name, number, "", None), reason="no source has this partition on disk")
        else:
            log = logs.get(Partition(store.topic, number))
            yield from comparer.partition(store, number, holders, log)


@dataclass(frozen=True)
class _Comparer:
    """The comparison of sources with one snapshot."""

    snapshot: SnapshotSource
    changelogs: Changelogs
    examples: int
    """The number of differences to keep for each store partition."""
    now_ms: Callable[[], int]

    def partition(
        self,
        store: StoreSnapshot,
        number: int,
        holders: list[tuple[RowSource, HeldStore]],
        log: ChangelogFacts | None,
    ) -> Iterator[Checked]:
        """Compare the rows of a store partition in all its sources; `log` is None if the changelog no longer exists."""
        part = store.part(number)
        assert part is not None
        if log is None:
            for source, held in holders:
                yield Checked(source.name, held, reason=f"topic '{store.topic}' no longer exists")
            return
        offsets = [held.offset for _, held in holders if held.offset is not None]
        first = max(min([part.offset, *offsets]), log.first)
        tail = self.changelogs.tail(Partition(store.topic, number), store.layout, first)
        for source, held in holders:
            try:
                with self.snapshot.open(store.store, number) as reference, source.open(store.store, number) as rows:
                    reason = _incomparable(reference, rows, log, self.now_ms())
                    if reason:
                        yield Checked(source.name, held, reason=reason)
                        continue
                    comparison = _compared(store.layout, reference, rows, tail, self.examples)
                yield Checked(source.name, held, comparison)
            except NotReadable as error:
                yield Checked(source.name, held, reason=str(error))


def _incomparable(reference: StoreRows, rows: StoreRows, log: ChangelogFacts, now_ms: int) -> str:
    """Return the reason why rows cannot be compared with those of the snapshot; empty if they can."""
    if rows.topic_id and reference.topic_id and rows.topic_id != reference.topic_id:
        return "the rows and the snapshot are of different topics of the same name: take a new snapshot"
    newest = max(reference.offset, rows.offset)
    # The worker may have written more since the changelog's end was read.
    for each, prefix, end in ((reference, "the snapshot's", log.end), (rows, "the", max(log.end, rows.offset))):
        as_of_ms = now_ms if each.as_of_ms is None else each.as_of_ms
        verdict = judge(LocalRows(each.offset, Provenance(each.topic_id, as_of_ms)), log._replace(end=end), now_ms)
        # Changes of the changelog are applied only to the older rows.
        if verdict.trust in (LocalRowsVerdict.OTHER_TOPIC, LocalRowsVerdict.LOST_RECORDS) or (
            verdict.trust is LocalRowsVerdict.REBUILD and each.offset < newest
        ):
            return f"{prefix} rows {verdict.reason}"
    return ""


def _compared(layout: StoreLayout, reference: StoreRows, rows: StoreRows, tail: Tail, examples: int) -> Comparison:
    lower, higher = sorted((reference.offset, rows.offset))
    if lower < tail.first:
        raise NotReadable("the worker restarted the restore of this partition meanwhile: retry")
    changes = tail.changes(higher)
    if layout.kind is StoreKind.VERSIONED:
        return _compared_versions(layout, reference, rows, changes, examples)
    between, later = split_changes(changes, lower, higher)
    expected: Iterator[Row] = reference.rows
    found: Iterator[Row] = rows.rows
    if reference.offset < rows.offset:
        expected = apply(expected, between)
    else:
        found = apply(found, between)
    return compare(
        expected,
        found,
        undecided=later,
        expired=_expired(layout, (reference.metadata, rows.metadata)),
        examples=examples,
    )


def _compared_versions(
    layout: StoreLayout, reference: StoreRows, rows: StoreRows, changes: list[Change], examples: int
) -> Comparison:
    older, newer = sorted((reference, rows), key=lambda each: each.offset)
    between = [each for each in changes if older.offset <= each.offset < newer.offset]
    puts, observed = accepted_puts(between, layout, _stream_time(older.metadata))
    observed = max(observed, _stream_time(newer.metadata))
    return compare(
        live_rows(reference.rows, puts if reference is older else {}, layout, observed),
        live_rows(rows.rows, puts if rows is older else {}, layout, observed),
        undecided=VersionsOf({each.key for each in changes if each.offset >= newer.offset}),
        expired=lambda _key: False,
        examples=examples,
    )


def _stream_time(metadata: bytes) -> int:
    """Return the stream time of a store of windows, sessions or versions, in epoch ms; -1 without metadata."""
    return msgspec.msgpack.decode(metadata, type=dict[str, int])["observed_stream_time"] if metadata else -1


def _expired(layout: StoreLayout, metadata: Iterable[bytes]) -> Callable[[bytes], bool]:
    """Return whether the window or session of a row has expired, by the latest stream time of both sides."""
    if not layout.windowed:
        return lambda _key: False
    bound = expired_before(layout, max(map(_stream_time, metadata), default=-1)) or 0

    def expired(key: bytes) -> bool:
        time = time_of(layout, key)
        return time is not None and time < bound

    return expired
