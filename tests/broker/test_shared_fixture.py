"""The broker fixture of all other tests."""

from __future__ import annotations

import itertools

from tests.support import broker as support
from tests.support import kafka


def test_records_come_back_with_key_value_timestamp_and_partition(broker, create_topic):
    """A test reads what it produces, and the partition is the one of Java's partitioner."""
    topic = create_topic("echo", partitions=3)
    kafka.produce(broker.bootstrap_servers, topic, [("a", "1", 1_000), ("b", None, 2_000, 2), (None, "3", 3_000, 0)])
    rows = {(row.key, row.value, row.timestamp) for row in kafka.read(broker.bootstrap_servers, topic)}
    assert rows == {(b"a", b"1", 1_000), (b"b", None, 2_000), (None, b"3", 3_000)}
    assert sum(kafka.end_offsets(broker.bootstrap_servers, topic).values()) == 3
    assert len(kafka.read_until(broker.bootstrap_servers, topic, 3)) == 3


def test_no_two_test_processes_get_one_port(monkeypatch):
    """A port that is chosen, but not yet in use, is not chosen again: as if another process drew the same numbers."""
    chosen = support.free_port()
    others = list(itertools.islice(support._ports, 5))
    monkeypatch.setattr(support, "_ports", iter([chosen, *others]))
    assert support.free_port() in others
