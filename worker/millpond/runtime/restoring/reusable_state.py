"""The decision whether local rows of a store are reused, or restored from the beginning of their changelog. Pure.

Rows on disk are a cache of the changelog, but only of the topic they were written from, and only while that topic still
has the deletions since. If the topic was deleted and created again, local rows may be the only good copy of the state:
then nothing is dropped, and the worker stops (docs/decisions/0026-changelogs-that-were-deleted.md).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from millpond.runtime.topics.identity import TopicIdentity
from millpond.state.provenance import Provenance

__all__ = (
    "ChangelogFacts",
    "LocalRows",
    "LocalRowsVerdict",
    "Verdict",
    "judge",
    "lacks_beginning",
    "longest_unwritten_ms",
    "oldest_ms",
)

_MAX_MARGIN_MS = 3_600_000
_MAX_UNWRITTEN_MS = 600_000
#: The largest clock skew between machines: a time further in the future is wrong.
_MAX_CLOCK_SKEW_MS = 60_000


class LocalRows(NamedTuple):
    """The local rows of a store partition."""

    offset: int
    """Their changelog offset."""
    provenance: Provenance
    """Their changelog topic, and the time up to which they are complete."""


class ChangelogFacts(NamedTuple):
    """The facts about a changelog partition."""

    first: int
    """First offset."""
    end: int
    """End offset, after the last record."""
    facts: TopicIdentity
    """Identity of the topic."""


class LocalRowsVerdict(enum.Enum):
    """The decision about local rows."""

    KEEP = "keep"
    """Restore from their offset on."""
    REBUILD = "rebuild"
    """Drop them and restore from the beginning."""
    LOST_RECORDS = "lost records"
    """The topic is the same one, and brokers have lost the records at its end from which they were written."""
    OTHER_TOPIC = "other topic"
    """The topic is not the one they were written from."""


class Verdict(NamedTuple):
    """The decision, with its reason."""

    trust: LocalRowsVerdict
    reason: str = ""
    """The reason, as a clause after the subject "local rows"; empty for KEEP."""


def judge(rows: LocalRows, log: ChangelogFacts, now_ms: int) -> Verdict:
    """Decide whether local rows are reused.

    Args:
        rows: the local rows.
        log: their changelog.
        now_ms: the wall-clock time, in epoch milliseconds.
    """
    id, was = log.facts.id, rows.provenance.topic_id
    if id and was and id != was:
        return Verdict(
            LocalRowsVerdict.OTHER_TOPIC, f"were written from another topic of that name (id {was}, now {id})"
        )
    if rows.offset > log.end:
        same = bool(id) and id == was
        return Verdict(
            LocalRowsVerdict.LOST_RECORDS if same else LocalRowsVerdict.OTHER_TOPIC,
            f"are at offset {rows.offset}, but the topic ends at {log.end}",
        )
    if rows.offset < log.first:
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"are at offset {rows.offset}, but the topic begins at {log.first}: the records between were deleted",
        )
    as_of_ms = rows.provenance.as_of_ms
    if rows.offset < log.end and not log.facts.known:
        return Verdict(
            LocalRowsVerdict.REBUILD,
            "are behind the topic, which may have lost deletions: this application may not read its configuration",
        )
    if rows.offset < log.end and now_ms >= oldest_ms(as_of_ms, log.facts):
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"are {max(0, now_ms - as_of_ms) // 1000} s old, so the topic may have lost deletions since "
            f"('delete.retention.ms' is {log.facts.delete_retention_ms})",
        )
    if as_of_ms > now_ms + _MAX_CLOCK_SKEW_MS and rows.offset < log.end and log.facts.delete_retention_ms is not None:
        return Verdict(
            LocalRowsVerdict.REBUILD,
            f"have a time {(as_of_ms - now_ms) // 1000} s in the future: a clock was wrong, so their age is unknown",
        )
    return Verdict(LocalRowsVerdict.KEEP)


def lacks_beginning(log: ChangelogFacts) -> bool:
    """Return whether a changelog that is only compacted has lost records at its beginning, and so keys."""
    return log.first > 0 and log.facts.only_compacted


def oldest_ms(as_of_ms: int, facts: TopicIdentity) -> float:
    """Return the time until which rows complete up to `as_of_ms` may be reused, in epoch ms; may be infinite."""
    retention = facts.delete_retention_ms
    if retention is None:
        return float("inf")
    return as_of_ms + retention - min(_MAX_MARGIN_MS, retention // 10)


def longest_unwritten_ms(facts: TopicIdentity) -> int:
    """Return the maximum age of the time on disk while no rows are written, in milliseconds."""
    retention = facts.delete_retention_ms
    return _MAX_UNWRITTEN_MS if retention is None else min(_MAX_UNWRITTEN_MS, retention // 4)
