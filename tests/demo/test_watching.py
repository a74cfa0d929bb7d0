"""The view of the demo on its own output: complete only when all its transactions have ended."""

from __future__ import annotations

from confluent_kafka import Producer

from examples.flights.stage.watch import Results
from tests.conftest import CreateTopic
from tests.support import kafka
from tests.support.broker import Broker


def test_the_end_of_the_output_is_awaited_until_no_transaction_is_open(
    broker: Broker, create_topic: CreateTopic
) -> None:
    """A reader of committed records sees an end before the open transaction, too, but that is not yet the end."""
    topic = create_topic("delays", partitions=1)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 0}, logger=kafka.log
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, key=b"JFK", value=b"12")
    producer.flush()
    results = Results(broker.bootstrap_servers, topic, 1)
    poll, looks = results.poll, 0

    def look(wait_s: float = 0.0) -> None:
        nonlocal looks
        looks += 1
        if looks == 5:  # a reader that takes the first end for the last one has returned by then
            producer.commit_transaction()
        poll(wait_s)

    results.poll = look  # type: ignore[method-assign]
    try:
        results.read_to_end()
        assert results.records == [(b"JFK", b"12")]
    finally:
        results.close()
