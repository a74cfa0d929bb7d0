"""Queries of versioned stores return the values that a key had at a time, or in a range of times (KIP-960, KIP-968)."""

from __future__ import annotations

import random

import pytest

import millpond as mp
from millpond.queries import FailureReason, QueryFailed
from millpond.state import MemoryBackend
from tests.queries.application import Application

TIMES = range(0, 320, 7)


@pytest.mark.slow
@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(3))
def test_answers_equal_those_of_the_store(seed: int) -> None:
    """All workers answer as `VersionedKeyValueStore` does, committed and uncommitted, also after late updates."""
    chance = random.Random(seed)
    builder = mp.VersionedKeyValueStoreBuilder(
        name="history", key=mp.String, value=mp.Long, history_retention_ms=100, segment_interval_ms=20
    )
    stores: dict[tuple[bool, int], mp.state.VersionedKeyValueStore[str, int]] = {}
    application = Application(2, 2)
    try:
        for number in range(60):
            key, time = chance.choice(["a", "a\0", "ab", "b"]), max(0, 5 * number - chance.randrange(120))
            value = None if chance.random() < 0.2 else number
            # The first half is committed at once, the second half is not.
            partition = application.put("history", key, value, time, commit=number < 30)
            for committed in (True, False):
                if not committed or number < 30:
                    own = stores.setdefault((committed, partition), builder.build(partition, MemoryBackend()))
                    own.put(key, value, time)
        for isolation, committed in (("read_committed", True), ("read_uncommitted", False)):
            for worker in application.workers:
                store = application.client(worker).store("history", key=mp.String, value=mp.Long)
                for key in ("a", "a\0", "ab", "b", "missing"):
                    own = stores[committed, application.catalog["history"].partition_of(key.encode())]
                    for time in TIMES:
                        expected = own.get(key, time)
                        found = store.get_as_of(key, time, isolation=isolation)
                        assert found == (None if expected is None else expected.value)
                    latest = own.get(key)
                    assert store.get(key, isolation=isolation) == (None if latest is None else latest.value)
                    for first, last in ((None, None), (150, None), (None, 150), (100, 200), (0, 10)):
                        for reverse in (False, True):
                            rows = store.versions(key, first, last, reverse=reverse, isolation=isolation)
                            assert [(r.value, r.timestamp, r.valid_to) for r in rows] == [
                                (r.value, r.timestamp, r.valid_to)
                                for r in own.versions(key, first, last, descending=reverse)
                            ]
    finally:
        application.close()


def test_other_queries_are_rejected_with_those_that_there_are() -> None:
    """A versioned store has no ranges of keys."""
    application = Application(1, 1, alone=True)
    try:
        with pytest.raises(
            QueryFailed, match=r"is a versioned store .* use /keys/\{key\} or /versions/\{key\}"
        ) as caught:
            list(application.client().store("history").all())
        assert caught.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
        application.put("counts", "a", mp.ValueAndTimestamp(7, 1))
        with pytest.raises(QueryFailed, match="as_of"):
            application.client().store("counts").get_as_of("a", 5)
    finally:
        application.close()
