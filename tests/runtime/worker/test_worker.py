"""Sequences of events after which records were once lost or duplicated, or the worker stopped processing."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, TopicPartition

import millpond as mp
import millpond.runtime.worker.commit_scheduler as committer_module
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.takeover import OffsetStore
from tests.runtime.running import GUARANTEES, Running, config, run_until
from tests.support import kafka

CONTINUE = {"deserialization.exception.handler": "continue"}


def long(number):
    """Return a value as the Long serde writes it."""
    return number.to_bytes(8, "big", signed=True)


def test_dead_letter_of_a_waiting_record_is_sent_once(broker, create_topic, app_id, tmp_path):
    """A bad record behind a waiting record is not handled before its turn, however often the worker starts."""
    left, right = create_topic("left", 2), create_topic("right", 2)
    target, letters = create_topic("out"), create_topic("dead")
    builder = mp.StreamsBuilder()
    table = builder.table(right, key=mp.String, value=mp.Long)
    builder.stream(left, key=mp.String, value=mp.Long).left_join(table, lambda one, _: one).to(
        target, key=mp.String, value=mp.Long
    )
    topology = builder.build()
    settings = {
        **CONTINUE,
        "processing.guarantee": "exactly_once",
        "errors.dead.letter.queue.topic.name": letters,
        "max.task.idle.ms": 3_600_000,
    }
    servers = broker.bootstrap_servers
    kafka.produce(servers, left, [("a", long(1), 10, 0), ("a", b"bad", 11, 0), ("a", long(2), 12, 0)])
    for start in (1, 2):
        # The other task commits meanwhile.
        kafka.produce(servers, left, [("b", long(start), 10 * start - 5, 1)])
        kafka.produce(servers, right, [("b", long(start), 10 * start, 1)])
        with Running(topology, servers, app_id, tmp_path, settings) as running:
            running.wait_running()
            committed = lambda start=start: kafka.committed_offsets(servers, app_id, left)[1][0] >= start
            running.wait(committed, "the other task commits")
    kafka.produce(servers, right, [("a", long(0), 13, 0)])
    with Running(topology, servers, app_id, tmp_path, settings) as running:
        done = lambda: kafka.committed_offsets(servers, app_id, left)[0][0] >= 2
        running.wait(done, "the bad record is passed")
    assert len(kafka.read(servers, letters, settled=True)) == 1


def test_write_caused_by_a_flush_is_committed_with_it(broker, create_topic, app_id, tmp_path):
    """Rows that a cache forwards into a store that is already flushed are in the same commit as the offsets."""
    source, target = create_topic("in"), create_topic("out")

    class Touch(mp.Processor):
        def init(self, context):
            self.context, self.store = context, context.get_state_store("shared")

        def process(self, record):
            self.context.forward(record)

    class Note(Touch):
        def process(self, record):
            self.store.put(record.key, record.value)
            self.context.forward(record)

    builder = mp.StreamsBuilder()
    builder.add_state_store(mp.KeyValueStoreBuilder(name="shared", key=mp.String, value=mp.Long))
    (
        builder.stream(source, key=mp.String, value=mp.Long)
        .process(Touch, stores=["shared"])
        .group_by_key(key=mp.String, value=mp.Long)
        .count()
        .to_stream()
        .process(Note, stores=["shared"])
        .to(target, key=mp.String, value=mp.Long)
    )
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", long(1), 1_000)])
    settings = {"processing.guarantee": "exactly_once"}
    run_until(builder.build(), servers, app_id, tmp_path, target, 1, settings)
    assert kafka.committed_offsets(servers, app_id, source)[0][0] >= 1
    assert [row.value for row in kafka.read(servers, f"{app_id}-shared-changelog", settled=True)] == [long(1)]


def test_committed_offsets_reach_the_end_of_a_topic_with_transaction_markers(broker, create_topic, app_id, tmp_path):
    """The lag that other programs compute of committed offsets ends at 0, as with Kafka Streams."""
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()
    stream = builder.stream(source, key=mp.String, value=mp.Long)
    stream.repartition(name="again", partitions=1).to(target)
    servers, between = broker.bootstrap_servers, f"{app_id}-again-repartition"
    kafka.produce(servers, source, [("a", long(1), 1_000)])

    def nothing_is_left():
        end, [committed] = (
            kafka.end_offsets(servers, between)[0],
            kafka.committed_offsets(servers, app_id, between).values(),
        )
        return end == committed[0] == 2  # the record and its marker

    with Running(builder.build(), servers, app_id, tmp_path, {"processing.guarantee": "exactly_once"}) as running:
        running.wait(lambda: kafka.end_offsets(servers, target)[0] > 0, "the record is processed")
        running.wait(nothing_is_left, "the marker is committed, too")


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_timestamp_zero_is_not_replaced_by_the_wall_clock(broker, create_topic, app_id, tmp_path, guarantee):
    """Timestamp 0 goes through outputs and repartition topics, and does not become the wall clock."""
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.Long)
        .select_key(lambda key, _: key)
        .repartition(partitions=1, key=mp.String, value=mp.Long)
        .to(target, key=mp.String, value=mp.Long)
    )
    kafka.produce(broker.bootstrap_servers, source, [("a", long(1), 5)])
    settings = {
        "processing.guarantee": guarantee,
        "default.timestamp.extractor": ZeroTime(),
    }
    rows = run_until(builder.build(), broker.bootstrap_servers, app_id, tmp_path, target, 1, settings)
    assert [row.timestamp for row in rows] == [1]


class ZeroTime(mp.TimestampExtractor):
    """An extractor that returns the epoch for all records."""

    def extract(self, record, partition_time):
        """Return 0, or the 1 that millpond sends instead of 0."""
        return min(record.timestamp, 1) if record.timestamp < 5 else 0


def test_full_outbox_does_not_block_the_commit_answer(broker, create_topic, app_id, tmp_path, monkeypatch):
    """A full outbox during a commit is no deadlock under at_least_once, where the consumer gets the answer."""
    monkeypatch.setattr(committer_module, "OUTBOX_BYTES", 10_000)
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()
    (
        builder.stream(source, key=mp.String, value=mp.Long)
        .flat_map_values(lambda value: [value] * 50)
        .to(target, key=mp.String, value=mp.Long)
    )
    servers = broker.bootstrap_servers
    settings = {"processing.guarantee": "at_least_once", "commit.interval.ms": 1}
    with Running(builder.build(), servers, app_id, tmp_path, settings) as running:
        running.wait_running()
        for number in range(5):
            kafka.produce(servers, source, [("a", long(number))], linger_ms=0)
        kafka.produce(servers, source, [("a", long(number)) for number in range(4_000)], linger_ms=0)
        running.wait(
            lambda: kafka.committed_offsets(servers, app_id, source)[0][0] >= 4_005, "all is committed", timeout_s=90
        )


def test_slow_user_code_does_not_delay_stop(broker, create_topic, app_id, tmp_path):
    """However many records wait, the worker handles commits and `stop()` after a small part of them."""
    source, target = create_topic("in"), create_topic("out")
    builder = mp.StreamsBuilder()

    def slow(value):
        time.sleep(0.01)
        return value

    (builder.stream(source, key=mp.String, value=mp.Long).map_values(slow).to(target, key=mp.String, value=mp.Long))
    servers = broker.bootstrap_servers
    kafka.produce(servers, source, [("a", long(number)) for number in range(3_000)])
    with Running(builder.build(), servers, app_id, tmp_path) as running:
        running.wait(lambda: len(kafka.read(servers, target)) > 0, "some are through")
        running.worker.stop()
        processed = running.worker.metrics.records_processed
        running.stop()
        assert running.worker.metrics.records_processed - processed <= 200
    assert [row.value for row in kafka.read(servers, target, settled=True)] == [
        long(number) for number in range(kafka.committed_offsets(servers, app_id, source)[0][0])
    ]


def test_a_task_whose_inputs_grew_can_be_taken_over(broker, create_topic, app_id, tmp_path):
    """An input without an owner is claimed together with those of the dead worker."""
    source, added, target = create_topic("in"), create_topic("added"), create_topic("out")
    servers = broker.bootstrap_servers

    def topology(*topics):
        builder = mp.StreamsBuilder()
        streams = [builder.stream(topic, key=mp.String, value=mp.Long) for topic in topics]
        merged = streams[0] if len(streams) == 1 else streams[0].merge(*streams[1:])
        merged.to(target, key=mp.String, value=mp.Long)
        return builder.build()

    settings = {"processing.guarantee": "exactly_once"}
    kafka.produce(servers, source, [("a", long(1))])
    run_until(topology(source), servers, app_id, tmp_path / "first", target, 1, settings)
    kafka.produce(servers, added, [("a", long(2))])
    heir = Running(topology(source, added), servers, app_id, tmp_path / "second", {**settings, "worker.id": "w1"})
    heir.worker = mp.Worker(
        topology(source, added),
        config(servers, app_id, tmp_path / "second", {**settings, "worker.id": "w1"}),
        heir.listener,
        take_over=True,
    )
    with heir as running:
        running.wait(lambda: len(kafka.read(servers, target)) == 2, "both are through")


def test_unreadable_offset_is_not_taken_for_uncommitted():
    """An error for a single partition is an error; otherwise the task would begin again, or be claimed."""
    refused = TopicPartition("t", 0)
    answer = SimpleNamespace(
        topic="t", partition=0, offset=-1001, metadata=None, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    )
    consumer = SimpleNamespace(committed=lambda wanted, timeout: [answer])
    store = OffsetStore(lambda: consumer, lambda: None, lambda: consumer, threading.Event().is_set, 1.0)
    with pytest.raises(mp.MillpondError, match="committed offsets"):
        store.read([Partition(refused.topic, refused.partition)])


def test_worker_id_unowned_is_refused():
    """Tasks without an owner are claimed under the transactional id of that name: its worker would fence itself."""
    with pytest.raises(mp.MillpondError, match="unowned"):
        mp.Config.of({"application.id": "a", "bootstrap.servers": "b:1", "worker.id": "unowned"})
