"""Versioned tables: which arguments they take, and what their topologies have (KIP-914)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import millpond as mp
from millpond.errors import TopologyError
from millpond.testing import TopologyTestDriver

HOUR = timedelta(hours=1)
DAY_MS = 86_400_000


def versioned(b: mp.StreamsBuilder, **options: Any) -> mp.KTable[str, str]:
    return b.table("rows", key=mp.String, value=mp.String, store="history", history_retention=HOUR, **options)


def grouped(b: mp.StreamsBuilder) -> mp.KGroupedStream[str, str]:
    return b.stream("in", key=mp.String, value=mp.String).group_by_key()


WINDOWS = mp.TimeWindows(HOUR)

MISTAKES: dict[str, tuple[Callable[[mp.StreamsBuilder], object], str]] = {
    "no name": (
        lambda b: b.table("rows", history_retention=HOUR),
        "The store 'rows' is versioned, since it has history_retention=, but has no name; give store= too.",
    ),
    "a cache": (
        lambda b: versioned(b, caching=True),
        "The store 'history' is versioned, and versioned stores have no cache; leave caching= out.",
    ),
    "no duration": (
        lambda b: b.table("rows", store="s", history_retention=5),
        "history_retention=5 is not a duration; use a datetime.timedelta",
    ),
    "a negative duration": (lambda b: b.table("rows", store="s", history_retention=-HOUR), "is negative"),
    "no segment": (
        lambda b: versioned(b, segment_interval=timedelta(0)),
        "The store 'history' has a segment_interval= of 0 ms; it must be at least 1 ms, or be left out.",
    ),
    "a segment without versions": (
        lambda b: grouped(b).count(store="s", segment_interval=HOUR),
        "The store 's' has segment_interval=, which only versioned stores have; give history_retention= too",
    ),
    "a global table": (
        lambda b: b.global_table("rows", store="s", history_retention=HOUR),
        "global_table() takes no history_retention=: global tables are not versioned; use table(), or leave it out.",
    ),
    "windows": (
        lambda b: grouped(b).windowed_by(WINDOWS).count(store="s", history_retention=HOUR),
        "count() has no argument 'history_retention'",
    ),
    "suppression": (
        lambda b: versioned(b).suppress(mp.until_time_limit(HOUR)),
        "suppress() cannot hold back the changes of 'KTABLE-SOURCE-0000000001', because it comes from a versioned",
    ),
    "suppression of a view": (
        lambda b: versioned(b).filter(lambda _, v: v > "a").map_values(len).suppress(mp.until_time_limit(HOUR)),
        "because it comes from a versioned table: leave out history_retention= above",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistake_is_rejected_with_its_cure(what: str) -> None:
    """Wrong options are found where they are given, and the message names the store or the operator."""
    mistake, message = MISTAKES[what]
    with pytest.raises(TopologyError, match=re.escape(message)):
        mistake(mp.StreamsBuilder())


def test_table_with_a_store_of_its_own_may_be_suppressed() -> None:
    """A store without versions ends the versions of the table above, as in Kafka Streams."""
    b = mp.StreamsBuilder()
    kept = versioned(b).filter(lambda _, v: v > "a", store="kept")
    kept.suppress(mp.until_time_limit(HOUR))
    assert "KTABLE-SUPPRESS" in str(b.build().describe())


def test_changelog_keeps_old_values_until_the_retention_has_passed() -> None:
    """Compaction must not remove a version that can still be read."""
    b = mp.StreamsBuilder()
    versioned(b, logging={"segment.bytes": "1048576"})
    (builder,) = b.build().subtopologies()[0].stores
    config = builder.changelog_config()
    assert config["min.compaction.lag.ms"] == str(3_600_000 + DAY_MS)
    assert config["segment.bytes"] == "1048576"


def test_rejected_updates_and_late_joins_count_as_dropped() -> None:
    """An update older than the retention is not forwarded; a late one is ignored by a join of tables."""
    b = mp.StreamsBuilder()
    other = b.table("other", key=mp.String, value=mp.String, store="other-rows")
    versioned(b).join(other, lambda one, two: one + two).to_stream().to("out", key=mp.String, value=mp.String)
    with TopologyTestDriver(b.build()) as driver:
        rows = driver.create_input_topic("rows", key=mp.String, value=mp.String)
        driver.create_input_topic("other", key=mp.String, value=mp.String).pipe_input("k", "o", 0)
        out = driver.create_output_topic("out", key=mp.String, value=mp.String)
        rows.pipe_input("k", "new", 7_200_000)
        rows.pipe_input("k", "late", 7_000_000)
        rows.pipe_input("k", "too late", 3_599_999)
        assert [r.value for r in out.read_records_to_list()] == ["newo"]
        store = driver.get_versioned_key_value_store("history")
        assert store is not None
        assert [(each.value, each.timestamp, each.valid_to) for each in store.versions("k")] == [
            ("late", 7_000_000, 7_200_000),
            ("new", 7_200_000, None),
        ]
        assert store.expired_puts == 1
        assert driver.metrics()["dropped"] == 2
