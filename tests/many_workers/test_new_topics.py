"""Several workers read topics by a pattern: topics that are created, and deleted, while they run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from tests.many_workers.fleet import Fleet
from tests.support import kafka

pytestmark = pytest.mark.usefixtures("processes")

PARTITIONS = 4
SETTINGS = {"processing.guarantee": "exactly_once", "commit.interval.ms": 100, "metadata.max.age.ms": 300}


class Inputs:
    """The topics of the pattern, and what was sent to them."""

    def __init__(self, servers: str, prefix: str, target: str) -> None:
        self._servers, self._target = servers, target
        self.prefix = prefix
        self.sent: dict[str, int] = {}

    def topology(self) -> mp.Topology:
        """Count the words in a store of the pattern's own tasks."""
        builder = mp.StreamsBuilder()
        words = builder.stream(re.compile(f"{re.escape(self.prefix)}-.*"), key=mp.String, value=mp.String)
        words.group_by_key().count(store="counts", caching=False).to_stream().to(
            self._target, key=mp.String, value=mp.Long
        )
        return builder.build()

    def create(self, name: str) -> str:
        topic = f"{self.prefix}-{name}"
        kafka.create_topic(self._servers, topic, PARTITIONS)
        return topic

    def produce(self, topic: str, times: int) -> None:
        """Send each key so often."""
        for _ in range(times):
            kafka.produce(self._servers, topic, [(f"key-{each}", topic) for each in range(20)])
        for each in range(20):
            self.sent[f"key-{each}"] = self.sent.get(f"key-{each}", 0) + times

    def counted(self) -> dict[str, int]:
        """Return the newest count of each key; with exactly once, each number came once."""
        newest: dict[str, int] = {}
        for row in kafka.read(self._servers, self._target):
            key, count = row.key.decode(), int.from_bytes(row.value, "big")
            assert count == newest.get(key, 0) + 1, f"{key}: {count} after {newest.get(key)}"
            newest[key] = count
        return newest


@pytest.fixture
def inputs(broker: Any, create_topic: Any) -> Inputs:
    """Return the inputs, with one topic."""
    target = create_topic("out", PARTITIONS)
    made = Inputs(broker.bootstrap_servers, target.replace("out", "in"), target)
    made.create("first")
    return made


def test_topics_created_while_workers_run_are_read_once(
    inputs: Inputs, broker: Any, app_id: str, tmp_path: Path
) -> None:
    """Also by a worker that starts later, and by one that takes over; a topic that is deleted ends nothing."""
    with Fleet(inputs.topology, broker.bootstrap_servers, app_id, tmp_path, SETTINGS) as fleet:
        fleet.start("w0", "w1")
        fleet.wait_shared(PARTITIONS)
        inputs.produce(f"{inputs.prefix}-first", 2)
        second = inputs.create("second")
        inputs.produce(second, 2)
        fleet.wait(lambda: inputs.counted() == inputs.sent, "the second topic is counted")
        fleet.start("w2")
        fleet.wait_shared(PARTITIONS)
        third = inputs.create("third")
        inputs.produce(third, 1)
        inputs.produce(second, 1)
        fleet.stop("w0")
        inputs.produce(third, 1)
        fleet.wait(lambda: inputs.counted() == inputs.sent, "the third topic is counted")
        kafka.delete_topics(broker.bootstrap_servers, [second])
        inputs.produce(third, 1)
        fleet.wait(lambda: inputs.counted() == inputs.sent, "the third topic is counted after the deletion")
        fleet.start("w3")
        fleet.wait_shared(PARTITIONS)
        inputs.produce(third, 1)
        inputs.produce(f"{inputs.prefix}-first", 1)
        fleet.wait(lambda: inputs.counted() == inputs.sent, "everything is counted after another start")
