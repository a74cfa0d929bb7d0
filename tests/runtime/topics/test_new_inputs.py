"""A running worker reads new topics that match its pattern, and reports which partitions it does not read."""

from __future__ import annotations

import re

import pytest
from confluent_kafka.cimpl import NewPartitions

import millpond as mp
from tests.runtime.running import GUARANTEES, Running
from tests.support import kafka


def _counting(pattern, target):
    builder = mp.StreamsBuilder()
    counts = builder.stream(re.compile(pattern), key=mp.String, value=mp.String).group_by_key().count(store="counts")
    counts.to_stream().to(target, key=mp.String, value=mp.Long)
    return builder.build()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_running_worker_reads_new_matching_topics(broker, create_topic, app_id, tmp_path, guarantee):
    """Without a restart and from their beginning. Further partitions of a topic are reported and not read."""
    servers, target = broker.bootstrap_servers, create_topic("out")
    prefix = target.replace("out", "in")
    first, second = create_topic(prefix), create_topic(prefix)
    kafka.delete_topics(servers, [second])
    topology = _counting(f"{re.escape(prefix)}-.*", target)
    settings = {"processing.guarantee": guarantee, "metadata.max.age.ms": 200}
    kafka.produce(servers, first, [(b"k", b"1")])
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        kafka.read_until(servers, target, 1)
        kafka.create_topic(servers, second)
        kafka.produce(servers, second, [(b"k", b"2")])
        rows = kafka.read_until(servers, target, 2)
        assert [int.from_bytes(row.value, "big") for row in rows][-1] == 2
        admin = kafka.admin(servers)  # one that goes ends its requests
        admin.create_partitions([NewPartitions(first, 3)])[first].result(60)
        running.wait(lambda: _told(running, first), "the worker tells of the new partitions")
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        assert _told(running, first)


def _told(running, topic):
    trouble = running.worker.waiting.trouble(0.0)
    sample = running.worker.metrics.registry.get_sample_value(
        "millpond_worker_unread_partitions",
        {"application_id": running.worker.config.application_id, "worker": "w0"},
    )
    return trouble is not None and f"'{topic}' has 3 partitions" in trouble.message and sample == 2
