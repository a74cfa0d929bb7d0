"""Records of an application's own topics that cannot be decoded, since an earlier version wrote them."""

from __future__ import annotations

import pytest
from confluent_kafka import Message

import millpond as mp
from millpond.errors import ProcessingFailed
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.processing.record_queue import RecordQueue
from millpond.runtime.processing.sources import make_decoder
from millpond.topology import SourceNode, TaskId


class Order(mp.Struct):
    cents: int


def failure(topic: str) -> str:
    """Read a record without the field that its type requires; return what the worker says."""
    environment = Environment("shop", Handlers(), internal_topics=frozenset({"sums-repartition"}))
    source = SourceNode("SOURCE", topics=(topic,), key=mp.String, value=mp.Json(Order))
    task = environment.context(TaskId(1, 0), [])
    queue = RecordQueue(topic, make_decoder(source, topic, task, environment), lambda *_: None)
    with pytest.raises(ProcessingFailed) as raised:
        queue.add([Message(topic=topic, partition=0, offset=7, key=b"k", value=b"{}", timestamp=(1, 10_000))])
        queue.handle_bad_first()
    return str(raised.value)


def test_a_record_of_an_own_topic_is_not_advised_to_be_dropped() -> None:
    """The cures keep it; of an input, whose records may be anything, they are those of any bad record."""
    said = failure("shop-sums-repartition")
    assert "'shop-sums-repartition' is the application's own topic, so an earlier version wrote the record" in said
    assert "give the field `cents` a default, with which old records are read" in said
    assert "run the earlier version until it has processed that topic" in said
    assert "continue" not in said
    assert "set 'deserialization.exception.handler' to 'continue'" in failure("orders")
