"""Values of settings that Kafka Streams takes, and that its own tests set."""

from __future__ import annotations

import pytest

from millpond.runtime.config.model import Config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.warmup.replicas", 2**31 - 1),  # no limit: as many copies warm up as there are
        ("acceptable.recovery.lag", 2**63 - 1),
        ("buffered.records.per.partition", 2**31 - 1),
        ("max.task.idle.ms", 2**31 - 1),
        ("statestore.cache.max.bytes", 2**31 - 1),
        ("replication.factor", -1),
    ],
)
def test_a_value_of_kafka_streams_is_taken(name: str, value: int) -> None:
    config = Config.of({"application.id": "a", name: value}, required=())
    assert config.as_mapping()[name] == value
