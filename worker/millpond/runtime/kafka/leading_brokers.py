"""Which brokers an application needs, and which of them have answered a worker for how long.

An application needs the brokers that lead partitions of its topics, and those that coordinate its commits. A broker
that leads nothing is not asked: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from confluent_kafka.admin import ClusterMetadata

from millpond.protocol import BrokerReach
from millpond.runtime.offsets.metadata import Partition

__all__ = ("BrokerAnswers", "asked_partitions", "coordinating_partition", "leaders_in")

_NO_LEADER = -1
#: Share of the limit for which a broker has to answer, or not to answer, until that is reported. Less than one, so that
#: a task moves within the limit; much more than the time between two checks, so that workers agree which broker is
#: reached by nobody.
_SETTLED_SHARE = 0.5
#: Share of the limit for which the last check counts: longer than a pause between two checks and one request, and less
#: than the share above. While a check takes longer, another worker may already miss a broker that stopped for all.
_RECENT_SHARE = 1 / 3


@dataclass(frozen=True, slots=True)
class _Answers:
    answering: bool
    since: float


class BrokerAnswers:
    """How long each broker has answered, or not. `reach` may be called from any thread.

    Args:
        limit_s: the limit of a worker without brokers, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._brokers: dict[int, _Answers] = {}
        self._noted_at = 0.0

    def note(self, answers: Mapping[int, bool], requested_at: float, now: float) -> None:
        """Note which of the needed brokers answered a check.

        Args:
            answers: by broker id; other brokers are not needed any more.
            requested_at: when the check began, in seconds.
            now: when it ended.
        """
        before = self._brokers
        self._noted_at = now
        self._brokers = {
            id: known
            if (known := before.get(id)) is not None and known.answering == answering
            else _Answers(answering, now if answering else requested_at)
            for id, answering in answers.items()
        }

    def reach(self, now: float) -> BrokerReach:
        """Return the report for the coordinator."""
        brokers = self._brokers
        recent = now - self._noted_at < self._limit_s * _RECENT_SHARE
        settled = {
            id: each
            for id, each in brokers.items()
            if now - each.since >= self._limit_s * _SETTLED_SHARE and (recent or not each.answering)
        }
        return BrokerReach(
            reached=tuple(sorted(id for id, each in settled.items() if each.answering)),
            missing=tuple(sorted(id for id, each in settled.items() if not each.answering)),
            settled=bool(settled) and len(settled) == len(brokers),
            limit_ms=max(1, round(self._limit_s * 1000)),
        )


def leaders_in(listing: ClusterMetadata, topics: Mapping[str, Container[int] | None]) -> dict[str, dict[int, int]]:
    """Return the broker that leads each partition of these topics, by topic in their order; without one, none.

    Args:
        listing: the metadata of topics.
        topics: by name, the partitions that matter; None for all.
    """
    found = {name: listing.topics[name] for name in topics if name in listing.topics}
    return {
        name: {
            number: each.leader
            for number, each in sorted(topic.partitions.items())
            if each.leader != _NO_LEADER and ((wanted := topics[name]) is None or number in wanted)
        }
        for name, topic in found.items()
        if topic.error is None
    }


def asked_partitions(leaders: Mapping[str, Mapping[int, int]]) -> dict[int, Partition]:
    """Return the first partition of each leader: few topics, so that few topics' leaders have to be known exactly."""
    asked: dict[int, Partition] = {}
    for topic, of_topic in leaders.items():
        for number, leader in of_topic.items():
            asked.setdefault(leader, Partition(topic, number))
    return asked


def coordinating_partition(name: str, partitions: int) -> int:
    """Return the partition of an internal topic of Kafka whose leader coordinates a group or a transactional id.

    Kafka takes the hash that Java gives the name, and clears the sign of the least integer by making it zero.
    """
    utf16 = name.encode("utf-16-be")
    code = 0
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
