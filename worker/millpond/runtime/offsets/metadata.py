"""Offset metadata: the text that Kafka keeps with every committed offset, the only authority on the owner of a task.

Each commit writes, for every input partition of a task: the owner, the owner's epoch, the topology's hash, the
partition time and the processors' own integers. This module has the rules that read it, as pure functions;
`runtime/ownership/takeover.py` applies them.

Metadata that Kafka Streams committed is read too: base64 of a version byte, the partition time and the processors'
integers (KIP-825). So an application may move from Java: such a task has no owner yet. Kafka Streams cannot read what
a client of Python commits, whatever its form: such a client commits a zero byte behind the text.

librdkafka copies metadata without the zero byte at its end, so what a client returns may go on with bytes of freed
memory. Every form is read up to its own end: that of the JSON, or the padding of base64.
"""

from __future__ import annotations

import base64
import binascii
import enum
import json
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
from confluent_kafka import TopicPartition

from millpond.errors import TopologyError
from millpond.topology import TaskId

from .operator_times import check_names, pack, short_name, unpack

__all__ = (
    "Claim",
    "CommittedOffset",
    "OffsetMetadata",
    "Partition",
    "Remembered",
    "belongs_to",
    "check_metadata",
    "claim_of",
    "decode_metadata",
    "encode_metadata",
    "epoch_of",
    "next_epoch",
    "remembered",
    "takeable",
    "tasks_by_claim",
    "text_of",
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
    """The metadata of a committed offset. Its JSON names are short, since brokers limit the text to 4 KiB."""

    owner: str | None = msgspec.field(default=None, name="o")
    epoch: int = msgspec.field(default=_NO_EPOCH, name="e")
    partition_time: int = msgspec.field(default=-1, name="t")
    processors: dict[str, int] = msgspec.field(default_factory=dict, name="p")
    version: int = msgspec.field(default=_VERSION, name="v")
    topology: str = msgspec.field(default="", name="h")
    """Hash of the task's topology; empty if unknown."""
    changelogs: str = msgspec.field(default="", name="c")
    """Digest of the ids of the changelog topics with the task's state; empty if unknown. A claim for another topology,
    whose changelogs may differ, keeps the former digest with a prefix (`changelogs_for`)."""
    shared: dict[str, int] = msgspec.field(default_factory=dict, name="s")
    """Processors' integers that Kafka Streams knows too, by its keys: for an aggregation that sends final results, the
    end of the windows that it sent last, by the name of its store."""
    topic: str = msgspec.field(default="", name="i")
    """Digest of the id of the topic in which the offset is; empty if unknown, and at offset 0, before which nothing of
    the topic was read. A commit never replaces one by another."""
    packed: str = msgspec.field(default="", name="q")
    """Packed form of `processors`, used for many of them (`operator_times.py`); always empty after decoding."""

    def changelogs_for(self, topology: str) -> str:
        """Return the digest to write in a claim for the topology with a hash; a digest of another one gets a prefix."""
        if self.topology == topology or not self.changelogs or self.former_changelogs:
            return self.changelogs
        return _FORMER + self.changelogs

    @property
    def any_changelogs(self) -> str:
        """The digest of the changelogs, also of those of another topology; empty if unknown."""
        return self.changelogs.removeprefix(_FORMER)

    @property
    def former_changelogs(self) -> bool:
        """Whether the digest is of another topology's changelogs."""
        return self.changelogs.startswith(_FORMER)


class CommittedOffset(NamedTuple):
    """A committed offset with its metadata; the offset is None without a commit."""

    offset: int | None
    metadata: OffsetMetadata

    def is_after(self, other: CommittedOffset) -> bool:
        """Return whether this cannot have been committed before `other`: owners' epochs and offsets only grow."""
        return self.metadata.epoch > other.metadata.epoch or self._number > other._number

    def is_before(self, other: CommittedOffset) -> bool:
        """Return whether this was committed before `other`, if not `is_after`, and unless offsets were reset."""
        return self.metadata.epoch < other.metadata.epoch or self._number < other._number

    @property
    def _number(self) -> int:
        return -1 if self.offset is None else self.offset

    def of_other_topic(self, digest: str) -> bool:
        """Return whether the offset is in a former topic of that name; False if one of the topics is unknown."""
        return bool(self.metadata.topic and digest and self.metadata.topic != digest)

    def of_same_topic(self, digest: str) -> bool:
        """Return whether the offset is certainly in the topic whose id has this digest."""
        return bool(digest) and self.metadata.topic == digest


class Remembered(NamedTuple):
    """The processors' integers that were committed last with the offsets of a task."""

    own: Mapping[str, int] = {}
    """Those that only millpond knows, by "node.name" or its short name."""
    shared: Mapping[str, int] = {}
    """Those that Kafka Streams knows too, by its keys."""


class Claim(enum.Enum):
    """The right of a worker to a task: resume its own task, claim a task without an owner, or leave a foreign task."""

    RESUME = "resume"
    CLAIM = "claim"
    FOREIGN = "foreign"


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(OffsetMetadata)
_long = struct.Struct(">q")
_int = struct.Struct(">i")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_json = json.JSONDecoder()
_KAFKA_STREAMS_VERSIONS = (b"\1", b"\2")
#: Processors' integers stay readable, for people and for workers of earlier versions, up to about this size.
_READABLE_BYTES = 1024
#: JSON around a name: quotes, colon, integer, comma.
_BYTES_PER_ENTRY = 20
#: Brokers' default limit (`offset.metadata.max.bytes`).
_MAX_BYTES = 4096
#: The largest values to allow for: a worker's name, an epoch, a time, a digest.
_LONG_NAME, _LARGE_EPOCH, _LARGE_TIME, _DIGEST = "w" * 253, 10**12, 10**13, "c" * 9
_TOPIC_DIGEST = "i" * 8
#: Prefix of a digest that is of another topology's changelogs.
_FORMER = "~"


def encode_metadata(metadata: OffsetMetadata) -> str:
    """Return the metadata string to commit."""
    values = metadata.processors
    if values and (
        sum(map(len, values)) + _BYTES_PER_ENTRY * len(values) > _READABLE_BYTES
        or any(short_name(name) == name for name in values)
    ):
        packed = base64.b64encode(pack(values, metadata.partition_time)).decode().rstrip("=")
        metadata = msgspec.structs.replace(metadata, processors={}, packed=packed)
    return _encoder.encode(metadata).decode()


def text_of(partition: TopicPartition) -> str | None:
    """Return the metadata that a Kafka client has read, which may go on with bytes of freed memory; None for none."""
    try:
        return partition.metadata
    except UnicodeDecodeError as error:
        return error.object[: error.start].decode()


def decode_metadata(text: str | None) -> OffsetMetadata:
    """Return decoded metadata. Text of neither millpond nor Kafka Streams counts as metadata without an owner."""
    if not text:
        return OffsetMetadata()
    if text.startswith("{"):
        return _of_millpond(text)
    encoded = _BASE64.match(text)
    assert encoded is not None  # it matches the empty text
    digits = encoded[0]
    # Padding is the end of the text. Without it, digits that follow the text cannot be told from it.
    whole = digits + "=" * (-len(digits) % 4) if text[len(digits) : len(digits) + 1] == "=" else digits
    try:
        return _of_kafka_streams(base64.b64decode(whole[: len(whole) - len(whole) % 4], validate=True))
    except (binascii.Error, ValueError, struct.error):
        return OffsetMetadata()


def _of_millpond(text: str) -> OffsetMetadata:
    try:
        end = _json.raw_decode(text)[1]
        found = _decoder.decode(text[:end].encode())
    except (ValueError, msgspec.DecodeError, msgspec.ValidationError):
        return OffsetMetadata()
    if not found.packed:
        return found
    try:
        packed = base64.b64decode(found.packed + "=" * (-len(found.packed) % 4), validate=True)
        values = {**unpack(packed, found.partition_time), **found.processors}
    except ValueError:
        values = found.processors  # the owner in it is valid all the same
    return msgspec.structs.replace(found, processors=values, packed="")


def _of_kafka_streams(raw: bytes) -> OffsetMetadata:
    """Return the metadata that Kafka Streams committed; such a task has no owner.

    Raises:
        ValueError: it is of an unknown version.
        struct.error: it is too short.
    """
    if raw[:1] not in _KAFKA_STREAMS_VERSIONS:
        raise ValueError("metadata of an unknown version")
    time = _long.unpack_from(raw, 1)[0]
    shared: dict[str, int] = {}
    if raw[:1] != b"\1":
        try:
            shared = _entries(raw, 1 + _long.size)
        except (struct.error, UnicodeDecodeError):
            pass  # the time is valid all the same
    return OffsetMetadata(partition_time=time, shared=shared)


def _entries(raw: bytes, place: int) -> dict[str, int]:
    """Return the processors' entries that begin at an index (KIP-825); Kafka Streams writes nothing for none."""
    shared: dict[str, int] = {}
    if place == len(raw):
        return shared
    count, place = _int.unpack_from(raw, place)[0], place + _int.size
    for _ in range(count):
        length, place = _int.unpack_from(raw, place)[0], place + _int.size
        name, place = raw[place : place + length].decode(), place + length
        shared[name] = _long.unpack_from(raw, place)[0]
        place += _long.size
    return shared


def check_metadata(task: TaskId, processors: Collection[str], topology: str, shared: Collection[str] = ()) -> bool:
    """Check, before a task runs, that its offset metadata cannot become too large for the brokers.

    Args:
        task: the task.
        processors: names of the integers that its processors keep.
        topology: the hash of its topology.
        shared: keys of the integers that Kafka Streams knows, too; they are written as they are.

    Returns:
        Whether the digest of the input's topic has room in it, too.

    Raises:
        TopologyError: the metadata may become too large for any commit, or two names have the same short name.
    """
    if not processors and not shared:
        return True
    check_names(processors)
    # An operator's time takes two bytes if seconds before the partition time, four if a month: allow for four.
    values = dict.fromkeys(processors, _LARGE_TIME - 2**27)
    largest = OffsetMetadata(
        _LONG_NAME, _LARGE_EPOCH, _LARGE_TIME, values, topology=topology, changelogs=_DIGEST,
        shared=dict.fromkeys(shared, _LARGE_TIME),
    )  # fmt: skip
    size = len(encode_metadata(largest))
    if size > _MAX_BYTES:
        raise TopologyError(
            f"sub-topology {task.subtopology} has {len(processors)} windowed operators and buffers: their stream times "
            f"need up to {size} bytes of metadata in each committed offset, and brokers accept {_MAX_BYTES}. Split it "
            f"with repartition(){', or give the stores of final results shorter names' if shared else ''}."
        )
    return len(encode_metadata(msgspec.structs.replace(largest, topic=_TOPIC_DIGEST))) <= _MAX_BYTES


def claim_of(worker: str, committed: Mapping[Partition, CommittedOffset]) -> tuple[Claim, str | None]:
    """Return the right of `worker` to the task whose inputs have these committed offsets.

    Returns:
        RESUME if the metadata names the worker, CLAIM if it names no owner, FOREIGN with the owner's name if it names
        another worker. A task of the worker with an input that names no owner, since it was added, is resumed.
    """
    owners = {each.metadata.owner for each in committed.values()} - {None}
    if not owners:
        return Claim.CLAIM, None
    foreign = sorted(owner for owner in owners if owner is not None and owner != worker)
    if foreign:
        return Claim.FOREIGN, foreign[0]
    return Claim.RESUME, worker


def remembered(committed: Iterable[CommittedOffset]) -> Remembered:
    """Return the largest of each integer over the inputs of a task."""
    own: dict[str, int] = {}
    shared: dict[str, int] = {}
    for each in committed:
        for values, latest in ((each.metadata.processors, own), (each.metadata.shared, shared)):
            for name, value in values.items():
                latest[name] = max(value, latest.get(name, value))
    return Remembered(own, shared)


def belongs_to(topology: str, committed: Mapping[Partition, CommittedOffset]) -> bool:
    """Return whether a task belongs to the topology with this hash; a task without a hash does."""
    return {each.metadata.topology for each in committed.values()} <= {topology, ""}


def epoch_of(committed: Mapping[Partition, CommittedOffset]) -> int:
    """Return the epoch of a task's owner."""
    return max((each.metadata.epoch for each in committed.values()), default=_NO_EPOCH)


def next_epoch(committed: Mapping[Partition, CommittedOffset]) -> int:
    """Return the epoch of a task's next owner, or of its owner after a restart."""
    return epoch_of(committed) + 1


def takeable(previous: str | None, committed: Mapping[Partition, CommittedOffset]) -> bool:
    """Return whether a task may be taken over from `previous`: an input names that owner, or none does for None."""
    owners = {each.metadata.owner for each in committed.values()} - {None}
    return previous in owners if previous is not None else not owners


def tasks_by_claim(
    worker: str, committed: Mapping[TaskId, Mapping[Partition, CommittedOffset]]
) -> tuple[list[TaskId], list[TaskId], dict[str, list[TaskId]]]:
    """Return the tasks to resume, the tasks to claim, and the tasks of each other owner."""
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
