"""A store that is renamed back is told of: it misses what was processed under the other name."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import millpond as mp
from millpond.runtime.topics.identity import digest_of
from millpond.runtime.topics.renamed_back import exchange
from tests.conftest import CreateTopic
from tests.runtime.running import Running
from tests.support import kafka
from tests.support.broker import Broker


@given(used=st.integers(1, 5), unused=st.integers(1, 5), size=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_the_exchanged_changelogs_are_found(used: int, unused: int, size: int, seed: int) -> None:
    """Of any size up to three, and nothing is found if changelogs were only added or removed, or one is unknown."""
    dice = random.Random(seed)
    now = {f"used-{each}": f"id{each}" for each in range(used)}
    others = {f"unused-{each}": f"id{each + 10}" for each in range(unused)}
    size = min(size, used, unused)
    missed, written = set(dice.sample(sorted(now), size)), set(dice.sample(sorted(others), size))
    kept = [id for topic, id in now.items() if topic not in missed]
    found = exchange(now, others, digest_of([*kept, *(others[each] for each in written)]))
    assert found is not None
    assert (set(found.missed), set(found.written)) == (missed, written)
    for other in (now.values(), [*now.values(), "id10"], [*kept, "of another application"]):
        assert exchange(now, others, digest_of(other)) is None


def test_a_store_renamed_back_names_the_reset_that_mends_it(
    broker: Broker, create_topic: CreateTopic, app_id: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once: afterwards the commits have its changelog again. Neither the first start nor the rename itself says it."""
    views = create_topic("views")
    told: list[list[str]] = []
    for number, store in enumerate(["counts", "per-user", "counts", "counts"], 1):
        builder = mp.StreamsBuilder()
        builder.stream(views, key=mp.String, value=mp.String).group_by_key().count(store=store)
        kafka.produce(broker.bootstrap_servers, views, [("a", "1")])
        caplog.clear()
        with caplog.at_level(logging.WARNING), Running(
            builder.build(), broker.bootstrap_servers, app_id, tmp_path, {}
        ) as running:  # fmt: skip
            running.wait(
                lambda number=number: kafka.committed_offsets(broker.bootstrap_servers, app_id, views)
                .get(0, (0, ""))[0] == number, f"start {number}: the record is committed",
            )  # fmt: skip
        told.append([each.getMessage() for each in caplog.records if "missed the records" in each.getMessage()])
    assert [len(each) for each in told] == [0, 0, 1, 0]
    assert "the store 'counts' missed" in told[2][0]
    assert f"`--internal-topics {app_id}-per-user-changelog`" in told[2][0]
