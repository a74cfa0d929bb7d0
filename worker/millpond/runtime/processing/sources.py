"""The start of a sub-topology: how the bytes of one source topic become records with a timestamp."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Message

from millpond.errors import ProcessingFailed
from millpond.topology import ConsumerRecordView, FailOnInvalidTimestamp, SourceNode

from .context import TaskContext, headers_of
from .environment import Environment
from .handlers import Handlers
from .record_queue import BadRecord, Decoder, ExtractTimestamp

__all__ = ("make_decoder", "on_bad_record")


def make_decoder(source: SourceNode, topic: str, task: TaskContext, environment: Environment) -> Decoder:
    """The decoder of one real topic of a source, for one task."""
    key = environment.key_serde(source.key, source.name, topic)
    value = environment.value_serde(source.value, source.name, topic)
    extractor = source.timestamp_extractor or environment.default_timestamp_extractor
    if isinstance(extractor, FailOnInvalidTimestamp):
        extractor = None  # what decoding does by itself, without a call per record

    def dropped() -> None:
        task.dropped += 1

    return Decoder(
        key.deserialize,
        value.deserialize,
        _extraction(extractor, source.name, task),
        extractor is None,
        on_bad_record(source.name, task, environment.handlers),
        dropped,
    )


def on_bad_record(node: str, task: TaskContext, handlers: Handlers) -> Any:
    """Asks the deserialization handler (KIP-161) about a record that is not decodable."""

    def handle(bad: BadRecord) -> None:
        task.message = bad.message
        context = handlers.describe("Decoding", node, task)
        try:
            handlers.handle(handlers.deserialization, context, bad.error, task)
        finally:
            task.message = None

    return handle


def _extraction(extractor: Any, node: str, task: TaskContext) -> ExtractTimestamp:
    """Wraps a TimestampExtractor; without one a negative timestamp stops the task (FailOnInvalidTimestamp)."""

    def extract(message: Message, key: Any, value: Any, partition_time: int) -> int:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        timestamp = message.timestamp()[1]
        if extractor is not None:
            record = ConsumerRecordView(key, value, timestamp, topic, partition, offset, headers_of(message))
            try:
                return int(extractor.extract(record, partition_time))
            except Exception as error:
                raise ProcessingFailed(
                    f"the timestamp extractor of source '{node}' failed at {topic}-{partition} offset {offset} "
                    f"(task {task.task_id}): {type(error).__name__}: {error}. Nothing of it is committed."
                ) from error
        if timestamp < 0:
            raise ProcessingFailed(
                f"the record at {topic}-{partition} offset {offset} has no valid timestamp ({timestamp}). Give its "
                f"source '{node}' a timestamp extractor, such as LogAndSkipOnInvalidTimestamp or "
                f"UsePartitionTimeOnInvalidTimestamp."
            )
        return timestamp

    return extract
