"""The decision whether a store is restored from a snapshot or by replay of its changelog. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from millpond.snapshots.layouts import StoreLayout, check_metadata
from millpond.snapshots.manifest import Manifest, Part
from millpond.state.provenance import Provenance

from .reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge, lacks_beginning

__all__ = (
    "Choice",
    "Estimate",
    "Rates",
    "RestoreMethod",
    "Unusable",
    "WantedStore",
    "choose",
    "choose_parts",
    "estimate",
    "usable_part",
)

#: Time to find a snapshot and to start with it, of any size, in seconds.
OVERHEAD_S = 3.0


class RestoreMethod(Enum):
    """The method that restores a store."""

    REPLAY = "replay"
    SNAPSHOT = "snapshot"


@dataclass
class Rates:
    """The restore rates of this worker; the defaults apply until they are measured."""

    replay: float = 150_000.0
    """Changelog records per second."""
    snapshot: float = 40e6
    """Bytes of snapshot files per second, with ingestion."""

    def shared(self, tasks: int) -> Rates:
        """Return the rates of each task when several are restored at the same time."""
        return Rates(self.replay / max(1, tasks), self.snapshot / max(1, tasks))


class WantedStore(NamedTuple):
    """A store partition to restore."""

    store: str
    layout: StoreLayout
    topic: str
    """Real name of the changelog."""
    partition: int
    partitions: int
    """Partition count of the changelog."""
    log: ChangelogFacts
    """The changelog partition, with the end that matters for this task."""
    offset: int | None
    """Offset of the local rows; None without usable local rows."""
    is_input: bool = False
    """Whether the changelog is an input of the application: then its current records are the whole truth."""

    @property
    def replay_records(self) -> int:
        """The number of offsets that a replay would read, an upper bound of the records."""
        return max(0, self.log.end - (self.log.first if self.offset is None else self.offset))

    @property
    def needed(self) -> bool:
        """Whether only a snapshot has all keys, because the changelog has lost its beginning."""
        return self.offset is None and not self.is_input and lacks_beginning(self.log)


class Unusable(Exception):
    """A snapshot cannot be used for a store. The message is a clause after the subject "the snapshot"."""


class Estimate(NamedTuple):
    """The estimated durations of both methods, in seconds."""

    replay_s: float
    snapshot_s: float


def estimate(
    replay_records: int, replay_rate: float, snapshot_bytes: int, snapshot_rate: float, tail_records: int
) -> Estimate:
    """Return the estimated durations of both methods.

    Args:
        replay_records: changelog records to replay without the snapshot.
        replay_rate: records per second.
        snapshot_bytes: size of the snapshot's files.
        snapshot_rate: bytes per second.
        tail_records: changelog records to replay after the snapshot.
    """
    replay_s = replay_records / replay_rate
    return Estimate(replay_s, OVERHEAD_S + snapshot_bytes / snapshot_rate + tail_records / replay_rate)


def choose(
    replay_records: int, replay_rate: float, snapshot_bytes: int, snapshot_rate: float, tail_records: int
) -> RestoreMethod:
    """Return the faster method, or the replay if both take equally long; see `estimate`."""
    each = estimate(replay_records, replay_rate, snapshot_bytes, snapshot_rate, tail_records)
    return RestoreMethod.SNAPSHOT if each.snapshot_s < each.replay_s else RestoreMethod.REPLAY


class Choice(NamedTuple):
    """The decision for some store partitions."""

    parts: Sequence[Part]
    """The part of the snapshot for each; empty when their changelogs are replayed."""
    estimate: Estimate


def choose_parts(
    manifest: Manifest, wanted: Sequence[WantedStore], application: str, now_ms: int, rates: Rates
) -> Choice:
    """Decide whether store partitions are restored from a snapshot: all of them, or none.

    Args:
        manifest: the manifest of the snapshot.
        wanted: the store partitions; at least one.
        application: the worker's application id.
        now_ms: the wall-clock time, in epoch ms.
        rates: the restore rates of the worker.

    Raises:
        Unusable: the snapshot cannot be used for one of them.
    """
    parts = [usable_part(manifest, each, application, now_ms) for each in wanted]
    amounts = (
        sum(each.replay_records for each in wanted), rates.replay, sum(part.bytes for part in parts), rates.snapshot,
        sum(each.log.end - part.offset for each, part in zip(wanted, parts, strict=True)),
    )  # fmt: skip
    needed = any(each.needed for each in wanted)
    behind = any((each.offset or 0) < part.offset for each, part in zip(wanted, parts, strict=True))
    faster = behind and choose(*amounts) is RestoreMethod.SNAPSHOT
    return Choice(parts if needed or faster else (), estimate(*amounts))


def usable_part(manifest: Manifest, wanted: WantedStore, application: str, now_ms: int) -> Part:
    """Return the part of a snapshot that a store partition can be restored from.

    Args:
        manifest: the manifest of the snapshot.
        wanted: the store partition.
        application: the worker's application id.
        now_ms: the wall-clock time, in epoch ms.

    Raises:
        Unusable: the snapshot has no usable part.
    """
    if manifest.application != application:
        raise Unusable(f"belongs to application '{manifest.application}'")
    snapshot = manifest.store(wanted.store)
    if snapshot is None:
        raise Unusable(f"does not have store {wanted.store}")
    if snapshot.layout != wanted.layout:
        raise Unusable(
            f"has store {wanted.store} in another layout ({_layout_text(snapshot.layout)} instead of "
            f"{_layout_text(wanted.layout)})"
        )
    if snapshot.topic != wanted.topic:
        raise Unusable(f"has store {wanted.store} from topic {snapshot.topic} instead of {wanted.topic}")
    if snapshot.partitions != wanted.partitions:
        raise Unusable(
            f"has {snapshot.partitions} partitions of {wanted.topic}, but the topic has {wanted.partitions} now"
        )
    part = snapshot.part(wanted.partition)
    if part is None:
        raise Unusable(f"does not have partition {wanted.partition} of store {wanted.store}")
    try:
        check_metadata(snapshot.layout, part.metadata)
    except ValueError as error:
        raise Unusable(f"has unreadable metadata for store {wanted.store} ({error})") from error
    rows = LocalRows(part.offset, Provenance(snapshot.topic_id, part.as_of_ms))
    verdict = judge(rows, wanted.log, now_ms)
    if verdict.trust is not LocalRowsVerdict.KEEP:
        raise Unusable(f"cannot be continued: its rows {verdict.reason}")
    return part


def _layout_text(layout: StoreLayout) -> str:
    kind = f"global {layout.kind.value}" if layout.is_global else layout.kind.value
    if layout.serdes:
        kind += f" of {layout.serdes}"
    return f"{kind}, retention {layout.retention_ms} ms" if layout.has_stream_time else kind
