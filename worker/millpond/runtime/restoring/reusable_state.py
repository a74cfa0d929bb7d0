"""Whether local rows of a store may be built upon, or have to be restored from the beginning of their changelog.

Pure. What is on disk is a cache of the changelog, but only of the very topic it was written from, and only as long as the
topic still tells what was deleted. Where the topic itself is not the one that it was, local rows may be the only good copy
of the state: then nothing is dropped, and the worker refuses to go on (docs/decisions/0026-changelogs-that-were-deleted.md).
"""

from __future__ import annotations

import base64
import enum
import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from millpond.runtime.topics.identity import TopicIdentity
from millpond.state.provenance import Provenance

__all__ = (
    "ChangelogFacts",
    "LocalRows",
    "LocalRowsVerdict",
    "Verdict",
    "digest_of",
    "judge",
    "lacks_beginning",
    "longest_unwritten_ms",
    "oldest_ms",
)

_LONGEST_MARGIN_MS = 3_600_000
_LONGEST_UNWRITTEN_MS = 600_000
#: Clocks of machines differ by less; a time that is further in the future is wrong, and says nothing.
_CLOCKS_DIFFER_MS = 60_000


class LocalRows(NamedTuple):
    """What the worker has of a store partition."""

    offset: int
    """Where it stands in the changelog."""
    provenance: Provenance
    """Which changelog that was, and when it was complete."""


class ChangelogFacts(NamedTuple):
    """The changelog partition as it is now."""

    first: int
    """The first offset kept."""
    end: int
    """The offset after the last record."""
    facts: TopicIdentity
    """What the topic is."""


class LocalRowsVerdict(enum.Enum):
    """What to do with local rows."""

    KEEP = "keep"
    """Restore from where they stand."""
    REBUILD = "rebuild"
    """Drop them, and restore from the beginning."""
    OTHER_TOPIC = "other topic"
    """The topic is not the one that they were written from."""


class Verdict(NamedTuple):
    """What to do, and why."""

    trust: LocalRowsVerdict
    reason: str = ""
    """A clause whose subject is the local rows; empty for KEEP."""


def judge(rows: LocalRows, log: ChangelogFacts, now_ms: int) -> Verdict:
    """Say what to do with local rows.

    Args:
        rows: the rows.
        log: their changelog.
        now_ms: the wall clock, in epoch milliseconds.
    """
    id, was = log.facts.id, rows.provenance.topic_id
    if id and was and id != was:
        return Verdict(
            LocalRowsVerdict.OTHER_TOPIC, f"were written from another topic of that name (id {was}, now {id})"
        )
    if rows.offset > log.end:
        return Verdict(LocalRowsVerdict.OTHER_TOPIC, f"stand at offset {rows.offset}, and the topic ends at {log.end}")
    if rows.offset < log.first:
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"stand at offset {rows.offset}, and the topic begins at {log.first}: what was between is gone",
        )
    as_of_ms = rows.provenance.as_of_ms
    if rows.offset < log.end and now_ms >= oldest_ms(as_of_ms, log.facts):
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"are {max(0, now_ms - as_of_ms) // 1000} s old, and deletions may have left the topic since "
            f"('delete.retention.ms' is {log.facts.delete_retention_ms})",
        )
    if as_of_ms > now_ms + _CLOCKS_DIFFER_MS and rows.offset < log.end and log.facts.delete_retention_ms is not None:
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"have a time {(as_of_ms - now_ms) // 1000} s in the future: a clock was wrong, and their age is unknown",
        )
    return Verdict(LocalRowsVerdict.KEEP)


def lacks_beginning(log: ChangelogFacts) -> bool:
    """Whether records were deleted from the beginning of a changelog that is only compacted: it lacks keys."""
    return log.first > 0 and log.facts.only_compacted


def oldest_ms(as_of_ms: int, facts: TopicIdentity) -> float:
    """Until when rows that were complete at `as_of_ms` may be continued, by the wall clock; infinite where for ever."""
    retention = facts.delete_retention_ms
    if retention is None:
        return float("inf")
    return as_of_ms + retention - min(_LONGEST_MARGIN_MS, retention // 10)


def longest_unwritten_ms(facts: TopicIdentity) -> int:
    """How far the time on disk may lag behind while nothing else is written, in milliseconds."""
    retention = facts.delete_retention_ms
    return _LONGEST_UNWRITTEN_MS if retention is None else min(_LONGEST_UNWRITTEN_MS, retention // 4)


def digest_of(ids: Iterable[str]) -> str:
    """Eight characters that stand for the changelogs of a task; empty where the brokers tell no ids."""
    known = sorted(ids)
    if not known or not all(known):
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256("\n".join(known).encode()).digest())[:8].decode()
