"""Several workers share the tasks of an application, hand them over, and count every record once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import millpond as mp
from tests.many_workers.fleet import Fleet
from tests.support import kafka

pytestmark = pytest.mark.usefixtures("processes")

PARTITIONS = 6
TASKS = 2 * PARTITIONS
SETTINGS = {"processing.guarantee": "exactly_once", "commit.interval.ms": 100}


class Input:
    """The input: sends words, and remembers how often each was sent."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        self.sent: Counter[str] = Counter()
        self._random = random.Random(4)

    def produce(self, records: int) -> None:
        """Send words."""
        words = [f"word-{self._random.randrange(50)}" for _ in range(records)]
        kafka.produce(self._servers, self._topic, [(str(number), word) for number, word in enumerate(words)])
        self.sent.update(words)


def counted(servers: str, topic: str) -> Counter[str]:
    """Return the newest count of each word in the output."""
    newest: dict[str, int] = {}
    for row in kafka.read(servers, topic):
        word, count = row.key.decode(), int.from_bytes(row.value, "big")
        # With exactly once, counts only increase.
        assert count > newest.get(word, 0), f"{word}: {count} after {newest.get(word)}"
        newest[word] = count
    return Counter(newest)


@pytest.fixture
def application(broker: Any, create_topic: Any, app_id: str, tmp_path: Path) -> Any:
    """Return a topology that counts words behind a repartition topic: two sub-topologies."""
    source, target = create_topic("in", PARTITIONS), create_topic("out", PARTITIONS)

    def topology() -> mp.Topology:
        builder = mp.StreamsBuilder()
        (
            builder.stream(source, key=mp.String, value=mp.String)
            .group_by(lambda _, word: word, key=mp.String, value=mp.String)
            .count(store="counts")
            .to_stream()
            .to(target, key=mp.String, value=mp.Long)
        )
        return builder.build()

    def fleet(**coordinator: object) -> Fleet:
        return Fleet(topology, broker.bootstrap_servers, app_id, tmp_path, SETTINGS, coordinator)

    return fleet, Input(broker.bootstrap_servers, source), lambda: counted(broker.bootstrap_servers, target)


def test_workers_share_tasks_while_others_come_and_leave(application: Any) -> None:
    """Three workers share the tasks; one leaves, one joins; counts are exact all the time."""
    make, given, result = application
    with make(**{"standby-replicas": 1}) as fleet:
        fleet.start("w0", "w1", "w2")
        fleet.wait_shared(TASKS)
        given.produce(2_000)
        fleet.wait(lambda: result() == given.sent, "all is counted")
        fleet.wait(lambda: sum(map(len, fleet.copies().values())) == PARTITIONS, "each task with state has a copy")
        fleet.stop("w1")
        given.produce(2_000)
        fleet.wait_shared(TASKS)
        fleet.wait(lambda: result() == given.sent, "all is counted by two")
        fleet.start("w3")
        given.produce(2_000)
        fleet.wait_shared(TASKS)
        given.produce(2_000)
        fleet.wait(lambda: result() == given.sent, "all is counted by three")
