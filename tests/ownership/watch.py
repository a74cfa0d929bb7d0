"""Watches ownership where it is kept: every commit of a group, as Kafka's own topic of offsets has it.

    await_shown(bootstrap_servers, application_id)
    chains = read_chains(bootstrap_servers, application_id)
    check_chains(chains)

`__consumer_offsets` keeps every commit until it is compacted, which leaves out the segment that is being written to
(100 MiB by default): in a test nothing is missing.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from millpond.runtime.kafka.leading_brokers import coordinating_partition
from millpond.runtime.offsets.metadata import Partition, decode_metadata
from tests.support import kafka
from tests.support.kafka import end_offsets, eventually

__all__ = (
    "CommitSeen",
    "await_shown",
    "check_chains",
    "faults",
    "parse_commit",
    "read_chains",
)

_TOPIC = "__consumer_offsets"
_TIMEOUT_S = 60.0
_SHOWN = 4


class CommitSeen(NamedTuple):
    """One commit of one partition, in the order in which they stand in the log."""

    offset: int | None
    """None where the offset was deleted, or expired."""
    owner: str | None
    """Who may commit next."""
    epoch: int
    timestamp: int
    """When it was committed, epoch ms by the broker's clock."""
    topology: str = ""
    """Hash of the topology whose task it is."""

    def __str__(self) -> str:
        return f"offset {self.offset} owner {self.owner or 'nobody'} epoch {self.epoch} at {self.timestamp}"


def await_shown(bootstrap_servers: str, group: str) -> None:
    """Wait until `read_chains` shows all that a group has committed so far.

    Its commits share a partition with those of other groups, whose open transactions hide what comes after them.
    """
    ends = end_offsets(bootstrap_servers, _TOPIC, isolation="read_uncommitted")
    place = coordinating_partition(group, len(ends))
    eventually(
        lambda: end_offsets(bootstrap_servers, _TOPIC)[place] >= ends[place], f"nothing hides the commits of {group}"
    )


def read_chains(bootstrap_servers: str, group: str) -> dict[Partition, list[CommitSeen]]:
    """All committed commits of a group, by input partition, oldest first.

    Transactions that are open now are not waited for: what came after the first of them is left out.

    Raises:
        AssertionError: the end was not reached within a minute.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-by-assignment-only",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "log_level": 3,
        },
        logger=kafka.log,
    )
    chains: dict[Partition, list[CommitSeen]] = {}
    try:
        partitions = len(consumer.list_topics(_TOPIC, timeout=_TIMEOUT_S).topics[_TOPIC].partitions)
        assert partitions, f"{_TOPIC} does not exist: no group has committed yet"
        consumer.assign([TopicPartition(_TOPIC, coordinating_partition(group, partitions), OFFSET_BEGINNING)])
        deadline = time.monotonic() + _TIMEOUT_S
        over = False
        while not over:
            assert time.monotonic() < deadline, f"the end of {_TOPIC} was not reached within {_TIMEOUT_S} s"
            for message in consumer.consume(10_000, timeout=0.2):
                over = _ends(message) or over
                if message.error() is None:
                    _add(chains, group, message)
    finally:
        consumer.close()
    return chains


def _ends(message: Message) -> bool:
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF and not error.retriable():
        raise KafkaException(error)
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _add(chains: dict[Partition, list[CommitSeen]], group: str, message: Message) -> None:
    key, value = message.key(), message.value()
    assert isinstance(key, bytes)
    found = parse_commit(key, value if isinstance(value, bytes) else None)
    if found is not None and found[0] == group:
        chains.setdefault(found[1], []).append(found[2])


def parse_commit(key: bytes, value: bytes | None) -> tuple[str, Partition, CommitSeen] | None:
    """A record of `__consumer_offsets`: group, partition and commit; None for one that is no commit.

    Keys are of version 0 or 1, values of version 0 to 4 (Kafka's OffsetCommitKey and OffsetCommitValue).

    Raises:
        ValueError: a version that nobody knew when this was written.
    """
    (version,) = struct.unpack_from(">h", key)
    if version > 1:
        return None  # a group's members
    group, at = _string(key, 2)
    topic, at = _string(key, at)
    (number,) = struct.unpack_from(">i", key, at)
    partition = Partition(topic, number)
    if value is None:
        return group, partition, CommitSeen(None, None, 0, -1)
    (version,) = struct.unpack_from(">h", value)
    if version > 4:
        raise ValueError(f"{_TOPIC} has a value of version {version}; versions up to 4 are understood.")
    (offset,) = struct.unpack_from(">q", value, 2)
    at = 10 + (4 if version >= 3 else 0)  # the leader's epoch
    text, at = _compact_string(value, at) if version >= 4 else _string(value, at)
    (timestamp,) = struct.unpack_from(">q", value, at)
    # The Python client sends the zero byte that ends its strings along, and takes it off when it reads.
    metadata = decode_metadata(text.rstrip("\0"))
    return group, partition, CommitSeen(offset, metadata.owner, metadata.epoch, timestamp, metadata.topology)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", data, at)
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _compact_string(data: bytes, at: int) -> tuple[str, int]:
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    return data[at : at + length - 1].decode(), at + length - 1


def check_chains(chains: Mapping[Partition, Sequence[CommitSeen]]) -> None:
    """Hold the commits of each partition against the rules of ownership.

    Raises:
        AssertionError: a rule is broken; every place is told, with the commits that led there.
    """
    found = list(faults(chains))
    assert not found, f"{len(found)} commits break the rules of ownership:\n" + "\n".join(found)


def faults(chains: Mapping[Partition, Sequence[CommitSeen]]) -> Iterable[str]:
    """What is wrong, one text for each wrong commit.

    A commit's metadata names who may commit next, so a change of owner is the last commit of the old one (a hand-over,
    which may move the offset) or an executor's (a take-over, which does not), and its epoch is higher. The new owner
    commits under that epoch or, come back after a restart, a higher one. A lower one is somebody's whose time was over.
    """
    for partition, chain in sorted(chains.items()):
        before, epochs = _START, dict[int, str]()
        for number, after in enumerate(chain):
            if after.offset is None:  # forgotten as a whole, so it begins anew
                before, epochs = _START, {}
                continue
            for fault in _faults_of(before, after, epochs):
                story = "".join(f"\n      {each}" for each in chain[max(0, number - _SHOWN) : number + 1])
                yield f"  {partition}, commit {number}: {fault}{story}"
            if after.epoch >= before.epoch:  # else it is out of the chain, which goes on without it
                before = after
                if after.owner is not None:
                    epochs.setdefault(after.epoch, after.owner)


_START = CommitSeen(None, None, 0, -1)


def _faults_of(before: CommitSeen, after: CommitSeen, epochs: Mapping[int, str]) -> Iterable[str]:
    assert after.offset is not None
    if before.offset is not None and after.offset < before.offset:
        yield f"the offset goes back from {before.offset} to {after.offset}"
    if after.owner is None:
        if before.owner is not None:
            yield f"it names no owner, where '{before.owner}' was"
    elif after.epoch < before.epoch:
        over = epochs.get(after.epoch) == after.owner and after.owner != before.owner
        late = f"after '{before.owner}' was named his successor" if over else f"after epoch {before.epoch}"
        yield f"'{after.owner}' commits under epoch {after.epoch} {late}"
    elif after.owner != before.owner and after.epoch == before.epoch:
        yield f"the owner changes from '{before.owner or 'nobody'}' to '{after.owner}' within epoch {after.epoch}"
