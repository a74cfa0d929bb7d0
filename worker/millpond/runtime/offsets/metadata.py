"""Who may run a task, as Kafka knows it: the metadata beside every committed offset.

Each commit writes, for every input partition of a task, its owner, the owner's epoch, the topology it belongs to, the
partition time and the processors' own metadata. The rules that read it are pure and stand here; `claims.py` carries them out.

Offsets that Kafka Streams committed are understood too (base64 of a version byte and the partition time), so an
application may be moved from Java: such a task has no owner yet.
"""

from __future__ import annotations

import base64
import binascii
import enum
import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from millpond.errors import TopologyError
from millpond.topology import TaskId

from .operator_times import check_names, pack, shortened, unpack

__all__ = (
    "Claim",
    "CommittedOffset",
    "OffsetMetadata",
    "Partition",
    "belongs_to",
    "check_metadata",
    "claim_of",
    "decode_metadata",
    "encode_metadata",
    "epoch_of",
    "next_epoch",
    "takeable",
    "tasks_by_claim",
)

_VERSION = 1
_NO_EPOCH = 0


class Partition(NamedTuple):
    """A topic partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands beside a committed offset. Field names are short because the broker limits the whole to 4 KiB."""

    owner: str | None = msgspec.field(default=None, name="o")
    epoch: int = msgspec.field(default=_NO_EPOCH, name="e")
    partition_time: int = msgspec.field(default=-1, name="t")
    processors: dict[str, int] = msgspec.field(default_factory=dict, name="p")
    version: int = msgspec.field(default=_VERSION, name="v")
    topology: str = msgspec.field(default="", name="h")
    """Hash of the topology whose task it is; "" where nobody wrote it."""
    changelogs: str = msgspec.field(default="", name="c")
    """Digest of the ids of the changelog topics that have the task's state; "" where nobody wrote it. After a claim for another
    topology, whose changelogs may be others, it is the one of before, marked as such (`changelogs_for`)."""
    packed: str = msgspec.field(default="", name="q")
    """Instead of `processors`, where these are many (`operator_times.py`); never set in what was decoded."""

    def changelogs_for(self, topology: str) -> str:
        """The digest to write in a claim for a topology, given by its hash: it says so when it is another topology's."""
        if self.topology == topology or not self.changelogs or self.former_changelogs:
            return self.changelogs
        return _FORMER + self.changelogs

    @property
    def former_changelogs(self) -> bool:
        """Whether the digest is of the changelogs that another topology had."""
        return self.changelogs.startswith(_FORMER)


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata; offset is None where nothing was ever committed."""

    offset: int | None
    metadata: OffsetMetadata


class Claim(enum.Enum):
    """What a worker may do about a task when it starts."""

    RESUME = "resume"
    CLAIM = "claim"
    FOREIGN = "foreign"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(OffsetMetadata)
_kafka_streams_time = struct.Struct(">q")
_KAFKA_STREAMS_VERSIONS = (1, 2)
#: Processors' integers stay readable, for people and for workers of earlier versions, up to about so many bytes.
_READABLE_BYTES = 1024
_BESIDE_A_NAME = 20
#: What brokers take with an offset (`offset.metadata.max.bytes`), and the longest owner's name and epoch to reckon with.
_MOST_BYTES = 4096
_LONG_NAME, _LARGE_EPOCH, _LARGE_TIME, _DIGEST = "w" * 253, 10**12, 10**13, "c" * 9
#: Before a digest of the changelogs of another topology than the one beside it.
_FORMER = "~"


def encode_metadata(metadata: OffsetMetadata) -> str:
    """The metadata string to commit."""
    values = metadata.processors
    if values and (
        sum(map(len, values)) + _BESIDE_A_NAME * len(values) > _READABLE_BYTES
        or any(shortened(name) == name for name in values)
    ):
        metadata = msgspec.structs.replace(metadata, processors={}, packed=pack(values, metadata.partition_time))
    return _encoder.encode(metadata).decode()


def decode_metadata(text: str | None) -> OffsetMetadata:
    """Metadata read back. What is not ours, or Kafka Streams' own, counts as nobody's."""
    if not text:
        return OffsetMetadata()
    try:
        found = _decoder.decode(text.encode())
    except (msgspec.DecodeError, msgspec.ValidationError):
        pass
    else:
        return _unpacked(found) if found.packed else found
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return OffsetMetadata()
    if len(raw) > _kafka_streams_time.size and raw[0] in _KAFKA_STREAMS_VERSIONS:
        return OffsetMetadata(partition_time=_kafka_streams_time.unpack_from(raw, 1)[0])
    return OffsetMetadata()


def _unpacked(found: OffsetMetadata) -> OffsetMetadata:
    try:
        values = {**unpack(found.packed, found.partition_time), **found.processors}
    except ValueError:
        values = found.processors  # whoever wrote it, the owner beside it counts
    return msgspec.structs.replace(found, processors=values, packed="")


def check_metadata(task: TaskId, processors: Collection[str], topology: str) -> None:
    """Check before a task runs that what it commits beside its offsets is not too large for the brokers.

    Args:
        task: the task.
        processors: names of the integers that its processors keep.
        topology: the hash of its topology.

    Raises:
        TopologyError: it may be too large, so no commit would succeed; or names cannot be told apart.
    """
    if not processors:
        return
    check_names(processors)
    # A second of two bytes to the partition time is little, a month is four: reckon with four bytes each.
    values = dict.fromkeys(processors, _LARGE_TIME - 2**27)
    largest = OffsetMetadata(_LONG_NAME, _LARGE_EPOCH, _LARGE_TIME, values, topology=topology, changelogs=_DIGEST)
    size = len(encode_metadata(largest))
    if size > _MOST_BYTES:
        raise TopologyError(
            f"sub-topology {task.subtopology} has {len(processors)} windowed operators and buffers: their stream times take up "
            f"to {size} bytes beside each committed offset, and brokers take {_MOST_BYTES}. Split it with repartition()."
        )


def claim_of(worker: str, committed: Mapping[Partition, CommittedOffset]) -> tuple[Claim, str | None]:
    """What `worker` may do about the task whose input partitions are `committed`.

    Returns:
        RESUME when the metadata names the worker, CLAIM when it names nobody, FOREIGN with the owner's name when it
        names another. A task whose partitions name both the worker and nobody (an input was added) is resumed.
    """
    owners = {each.metadata.owner for each in committed.values()} - {None}
    if not owners:
        return Claim.CLAIM, None
    foreign = sorted(owner for owner in owners if owner is not None and owner != worker)
    if foreign:
        return Claim.FOREIGN, foreign[0]
    return Claim.RESUME, worker


def belongs_to(topology: str, committed: Mapping[Partition, CommittedOffset]) -> bool:
    """Whether a task is one of this topology, by its hash, as far as its metadata tells."""
    return {each.metadata.topology for each in committed.values()} <= {topology, ""}


def epoch_of(committed: Mapping[Partition, CommittedOffset]) -> int:
    """The epoch of a task's owner."""
    return max((each.metadata.epoch for each in committed.values()), default=_NO_EPOCH)


def next_epoch(committed: Mapping[Partition, CommittedOffset]) -> int:
    """The epoch of a task's next owner, or of its owner's next incarnation."""
    return epoch_of(committed) + 1


def takeable(previous: str | None, committed: Mapping[Partition, CommittedOffset]) -> bool:
    """Whether a task is to be taken from `previous`: some input names it, or, where that is nobody, none names anybody."""
    owners = {each.metadata.owner for each in committed.values()} - {None}
    return previous in owners if previous is not None else not owners


def tasks_by_claim(
    worker: str, committed: Mapping[TaskId, Mapping[Partition, CommittedOffset]]
) -> tuple[list[TaskId], list[TaskId], dict[str, list[TaskId]]]:
    """Sort tasks into those to resume, those to claim, and those of each other owner."""
    resume: list[TaskId] = []
    unowned: list[TaskId] = []
    foreign: dict[str, list[TaskId]] = {}
    for task, partitions in committed.items():
        claim, owner = claim_of(worker, partitions)
        if claim is Claim.RESUME:
            resume.append(task)
        elif claim is Claim.CLAIM:
            unowned.append(task)
        else:
            foreign.setdefault(owner or "", []).append(task)
    return resume, unowned, foreign
