"""Public reports about inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

import millpond as mp
from millpond.errors import TopicError
from millpond.protocol import Role
from millpond.topology import TaskId
from tests.runtime.memory_kafka import Kafka
from tests.runtime.worker_parts import Parts


def test_records_of_a_topic_that_was_created_again_are_not_skipped(tmp_path: Path) -> None:
    """A topic is deleted and created again while producers go on, and its consumers miss the first records.

    https://github.com/confluentinc/librdkafka/issues/3255
    """
    kafka, task = Kafka(), TaskId(0, 0)
    kafka.append("in", "k", "of the first topic")
    builder = mp.StreamsBuilder()
    builder.stream("in", key=mp.String, value=mp.String).to("out")
    topology = builder.build()
    first = Parts(kafka, topology, tmp_path, {"in": 1, "out": 1})
    first.own(task)
    first.process()
    first.commit()
    first.close()
    kafka.remake("in", "another id")
    for number in range(3):
        kafka.append("in", "k", f"of the second topic, {number}")
    second = Parts(kafka, topology, tmp_path, {"in": 1, "out": 1})
    try:
        second.executor.hold([task], Role.ACTIVE)
        with pytest.raises(TopicError, match="'in' was deleted and created again: the committed offset 1 of in-0"):
            second.settle()
    finally:
        second.close()
    assert kafka.values("out") == [("k", "of the first topic")]
