"""Which brokers an application needs, and which of them have answered a worker for how long.

An application needs the brokers that lead partitions of its topics, and those that coordinate its commits. A broker
that leads nothing is not asked: nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass

from confluent_kafka.admin import ClusterMetadata

from millpond.protocol import BrokerReach
from millpond.runtime.offsets.metadata import Partition

__all__ = ("BrokerAnswers", "BrokerCheck", "asked_partitions", "coordinating_partition", "leaders_in")

_NO_LEADER = -1
#: Shares of the limit for which a broker has to answer, or not to answer, until that is reported. Without answers less
#: than one, so that a task moves within the limit.
_ANSWERS_SHARE, _SILENT_SHARE = 2 / 3, 1 / 2
#: Shares of the limit for which an answer, and the lack of one, count: longer than a pause between two checks and one
#: or two requests. With a report of the last sixth, no broker that stops for all workers, or is back for all, is
#: reached by one and missed by another: 1/3 + 1/6 is 1/2, and 1/2 + 1/6 is 2/3.
_ANSWER_COUNTS, _SILENCE_COUNTS = 1 / 3, 1 / 2


@dataclass(frozen=True, slots=True)
class BrokerCheck:
    """What one check of the needed brokers found out."""

    asked_at: float
    """When they were asked, in seconds."""
    answers: Mapping[int, bool]
    """Whether each answered, by broker id; other brokers are not needed."""
    clear: bool = True
    """Whether no answer means a silent broker. Otherwise a broker was too late that does answer: the client is slow."""


@dataclass(frozen=True, slots=True)
class _State:
    since: float
    """Since when, in seconds. A silence begins with the question of the first clear check that found it."""
    asked_at: float
    """The last question that proved it."""
    answering: bool = False
    clear: bool = False
    """Whether a clear check has found it silent."""

    def after(self, check: BrokerCheck, limit_s: float, *, answered: bool) -> _State:
        """Return the state after another check. Answers that are far apart do not prove that it answered in between."""
        if answered:
            goes_on = self.answering and check.asked_at - self.asked_at < _ANSWER_COUNTS * limit_s
            return _State(self.since if goes_on else check.asked_at, check.asked_at, answering=True)
        if not check.clear:
            return self if self.clear else _State(check.asked_at, check.asked_at)
        return _State(self.since if self.clear else check.asked_at, check.asked_at, clear=True)

    def reported(self, now: float, limit_s: float) -> bool:
        """Return whether it has lasted for long, and is proven well enough."""
        lasts_s, ago_s = now - self.since, now - self.asked_at
        if self.answering:
            return lasts_s >= _ANSWERS_SHARE * limit_s and ago_s < _ANSWER_COUNTS * limit_s
        return lasts_s >= _SILENT_SHARE * limit_s and ago_s < _SILENCE_COUNTS * limit_s  # so two clear checks found it


class BrokerAnswers:
    """How long each broker has answered, or not. `reach` may be called from any thread.

    A check that is not clear ends what is known of the answers of the brokers that it found silent, but proves no
    silence: a broker is missing half of the limit after the first of two clear checks, without an answer in between.

    Args:
        limit_s: the limit of a worker without brokers, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._brokers: Mapping[int, _State] = {}

    def note(self, check: BrokerCheck) -> None:
        """Note a check that has just ended."""
        before, unknown = self._brokers, _State(check.asked_at, check.asked_at)
        self._brokers = {
            id: before.get(id, unknown).after(check, self._limit_s, answered=answered)
            for id, answered in check.answers.items()
        }

    def note_silence(self) -> None:
        """Note that no broker answers: which of them answer is not known any more, and those that do not may go on."""
        self._brokers = {id: each for id, each in self._brokers.items() if not each.answering}

    @property
    def silent(self) -> Collection[int]:
        """The needed brokers that have not answered the last question, by id."""
        return [id for id, each in self._brokers.items() if not each.answering]

    def reach(self, now: float) -> BrokerReach:
        """Return the report for the coordinator."""
        brokers = self._brokers
        settled = {id: each for id, each in brokers.items() if each.reported(now, self._limit_s)}
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
