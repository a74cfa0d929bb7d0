"""When local rows are kept, when they are rebuilt from the beginning, and when neither."""

from __future__ import annotations

import pytest

from millpond.runtime.restoring.reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge
from millpond.runtime.topics.identity import TopicIdentity, digest_of, identity_of
from millpond.state.provenance import Provenance

DAY, HOUR = 86_400_000, 3_600_000
NOW = 1_800_000_000_000
COMPACTED, DELETED = TopicIdentity("id", DAY), TopicIdentity("id", None)


def _trust(
    offset: int = 5, age_ms: int = 0, *, id: str = "id", first: int = 0, end: int = 9, facts: TopicIdentity = COMPACTED
) -> LocalRowsVerdict:
    return judge(LocalRows(offset, Provenance(id, NOW - age_ms)), ChangelogFacts(first, end, facts), NOW).trust


@pytest.mark.parametrize(
    ("age_ms", "trust"),
    [
        (0, LocalRowsVerdict.KEEP),
        (DAY - HOUR - 1, LocalRowsVerdict.KEEP),
        (DAY - HOUR, LocalRowsVerdict.REBUILD),
        (3 * DAY, LocalRowsVerdict.REBUILD),
    ],
)
def test_rows_older_than_delete_retention_are_rebuilt(age_ms: int, trust: LocalRowsVerdict) -> None:
    """With a margin of an hour, for the time to read and clock skew."""
    assert _trust(age_ms=age_ms) is trust


def test_old_rows_that_miss_nothing_are_kept() -> None:
    """Nothing was written since, so nothing was deleted."""
    assert _trust(offset=9, age_ms=3 * DAY) is LocalRowsVerdict.KEEP


def test_old_rows_of_an_uncompacted_topic_are_kept() -> None:
    """It never loses a deletion before the records around it."""
    assert _trust(age_ms=3 * DAY, facts=DELETED) is LocalRowsVerdict.KEEP


def test_rows_before_the_beginning_of_the_log_are_rebuilt() -> None:
    """The records between may have been deletions."""
    assert _trust(offset=5, first=6) is LocalRowsVerdict.REBUILD
    assert _trust(offset=5, first=5) is LocalRowsVerdict.KEEP


def test_rows_from_the_future_are_rebuilt() -> None:
    """A clock was wrong, so their age is unknown; a minute is within the clock skew."""
    assert _trust(age_ms=-30 * HOUR) is LocalRowsVerdict.REBUILD
    assert _trust(age_ms=-30_000) is LocalRowsVerdict.KEEP


def test_rows_of_another_topic_are_recognized() -> None:
    """By the topic id if both are known, else by an end below their offset."""
    assert _trust(id="other") is LocalRowsVerdict.OTHER_TOPIC
    assert _trust(id="") is LocalRowsVerdict.KEEP
    assert _trust(offset=10, id="") is LocalRowsVerdict.OTHER_TOPIC


def test_the_same_topic_that_ends_before_the_rows_has_lost_records() -> None:
    """It was not created again, so the rows are not those of a former life."""
    assert _trust(offset=10) is LocalRowsVerdict.LOST_RECORDS


def test_short_retention_has_a_short_margin() -> None:
    """A tenth of it."""
    facts = TopicIdentity("id", 10_000)
    assert _trust(age_ms=8_999, facts=facts) is LocalRowsVerdict.KEEP
    assert _trust(age_ms=9_000, facts=facts) is LocalRowsVerdict.REBUILD


def test_retention_of_deletions_follows_the_topics_configuration() -> None:
    """No default is assumed where the setting is unknown."""
    assert identity_of("id", {"cleanup.policy": "delete", "delete.retention.ms": "5"}) == TopicIdentity("id", None)
    assert identity_of("id", {"cleanup.policy": "compact,delete", "delete.retention.ms": "5"}).delete_retention_ms == 5
    assert identity_of("id", {"cleanup.policy": "compact", "delete.retention.ms": "5"}).only_compacted
    for config in (None, {"cleanup.policy": "compact"}):
        unknown = identity_of("id", config)
        assert not unknown.known
        assert "may not read" in unknown.shown_retention


def test_rows_behind_a_changelog_of_unknown_retention_are_rebuilt() -> None:
    """Even young ones: it may have lost deletions since. Rows at its end need none."""
    unknown = identity_of("id", None)
    assert _trust(age_ms=1, facts=unknown) is LocalRowsVerdict.REBUILD
    assert _trust(age_ms=1, offset=9, facts=unknown) is LocalRowsVerdict.KEEP


def test_digest_depends_on_every_topic_and_on_no_order() -> None:
    """It is empty if an id is unknown."""
    assert digest_of(["a", "b"]) == digest_of(["b", "a"]) != digest_of(["a", "c"])
    assert len(digest_of(["a"])) == 8
    assert digest_of(["a", ""]) == digest_of([]) == ""
