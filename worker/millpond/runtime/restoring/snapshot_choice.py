"""Decides whether a store is restored from a snapshot or from the beginning of its changelog. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from millpond.snapshots.manifest import Manifest, Part
from millpond.snapshots.rows import StoreLayout, check_metadata
from millpond.state.provenance import Provenance

from .reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge, lacks_beginning

__all__ = (
    "Choice",
    "Estimate",
    "Rates",
    "Unusable",
    "WantedStore",
    "Way",
    "choose",
    "choose_parts",
    "estimate",
    "usable_part",
)

#: Looking for a snapshot and beginning with it takes about so long, whatever its size.
OVERHEAD_S = 3.0


class Way(Enum):
    """How a store is restored."""

    REPLAY = "replay"
    SNAPSHOT = "snapshot"


@dataclass
class Rates:
    """What this worker achieves; the defaults are for when nothing was measured yet."""

    replay: float = 150_000.0
    """Changelog records per second."""
    snapshot: float = 40e6
    """Bytes of snapshot files per second, ingestion included."""

    def shared(self, tasks: int) -> Rates:
        """What is left for each of so many tasks that are restored at the same time."""
        return Rates(self.replay / max(1, tasks), self.snapshot / max(1, tasks))


class WantedStore(NamedTuple):
    """A store partition that is to be restored."""

    store: str
    layout: StoreLayout
    topic: str
    """The changelog."""
    partition: int
    partitions: int
    """How many the changelog has."""
    log: ChangelogFacts
    """Where the changelog begins and ends, for this task."""
    offset: int | None
    """The offset that local rows reach; None without local rows that can be used."""
    is_input: bool = False
    """Whether the changelog is an input of the application: then what it has is all there ever was."""

    @property
    def replay_records(self) -> int:
        """Offsets from where a replay would begin to the end: an upper bound of the records."""
        return max(0, self.log.end - (self.log.first if self.offset is None else self.offset))

    @property
    def needed(self) -> bool:
        """Whether a replay would leave keys out, since the changelog has lost its beginning."""
        return self.offset is None and not self.is_input and lacks_beginning(self.log)


class Unusable(Exception):
    """A snapshot cannot be used for a store; the message is a clause whose subject is the snapshot."""


class Estimate(NamedTuple):
    """How long each way takes, in seconds."""

    replay_s: float
    snapshot_s: float


def estimate(
    replay_records: int, replay_rate: float, snapshot_bytes: int, snapshot_rate: float, tail_records: int
) -> Estimate:
    """Return how long both ways take.

    Args:
        replay_records: changelog records to replay without the snapshot.
        replay_rate: records per second.
        snapshot_bytes: of the snapshot's files.
        snapshot_rate: bytes per second.
        tail_records: changelog records to replay after the snapshot.
    """
    replay_s = replay_records / replay_rate
    return Estimate(replay_s, OVERHEAD_S + snapshot_bytes / snapshot_rate + tail_records / replay_rate)


def choose(
    replay_records: int, replay_rate: float, snapshot_bytes: int, snapshot_rate: float, tail_records: int
) -> Way:
    """Return the quicker way; see `estimate`. Of two that take as long, the replay."""
    each = estimate(replay_records, replay_rate, snapshot_bytes, snapshot_rate, tail_records)
    return Way.SNAPSHOT if each.snapshot_s < each.replay_s else Way.REPLAY


class Choice(NamedTuple):
    """What some store partitions are restored from."""

    parts: Sequence[Part]
    """Of the snapshot, one for each; empty when their changelogs are replayed."""
    estimate: Estimate


def choose_parts(
    manifest: Manifest, wanted: Sequence[WantedStore], application: str, now_ms: int, rates: Rates
) -> Choice:
    """Return the parts of a snapshot that store partitions are restored from: all of them, or none.

    Args:
        manifest: of the snapshot.
        wanted: the store partitions; at least one.
        application: the worker's application id.
        now_ms: the wall clock, in epoch ms.
        rates: what the worker achieves.

    Raises:
        Unusable: the snapshot cannot be used for one of them, with the reason.
    """
    parts = [usable_part(manifest, each, application, now_ms) for each in wanted]
    took = (
        sum(each.replay_records for each in wanted), rates.replay, sum(part.bytes for part in parts), rates.snapshot,
        sum(each.log.end - part.offset for each, part in zip(wanted, parts, strict=True)),
    )  # fmt: skip
    needed = any(each.needed for each in wanted)
    behind = any((each.offset or 0) < part.offset for each, part in zip(wanted, parts, strict=True))
    quicker = behind and choose(*took) is Way.SNAPSHOT
    return Choice(parts if needed or quicker else (), estimate(*took))


def usable_part(manifest: Manifest, wanted: WantedStore, application: str, now_ms: int) -> Part:
    """Return the part of a snapshot that a store partition can be restored from.

    Args:
        manifest: of the snapshot.
        wanted: the store partition.
        application: the worker's application id.
        now_ms: the wall clock, in epoch ms.

    Raises:
        Unusable: there is none, with the reason.
    """
    if manifest.application != application:
        raise Unusable(f"is of application '{manifest.application}'")
    snapshot = manifest.store(wanted.store)
    if snapshot is None:
        raise Unusable(f"does not have store {wanted.store}")
    if snapshot.layout != wanted.layout:
        raise Unusable(
            f"has store {wanted.store} in another layout ({_described(snapshot.layout)} instead of {_described(wanted.layout)})"
        )
    if snapshot.topic != wanted.topic:
        raise Unusable(f"has store {wanted.store} from topic {snapshot.topic} instead of {wanted.topic}")
    if snapshot.partitions != wanted.partitions:
        raise Unusable(
            f"is of {snapshot.partitions} partitions of {wanted.topic}, and the topic has {wanted.partitions} now"
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


def _described(layout: StoreLayout) -> str:
    kind = f"global {layout.kind.value}" if layout.is_global else layout.kind.value
    if layout.serdes:
        kind += f" of {layout.serdes}"
    return f"{kind}, retention {layout.retention_ms} ms" if layout.windowed else kind
