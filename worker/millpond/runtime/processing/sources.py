"""The sources of a sub-topology: they deserialize records of a topic, and extract their timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Message

from millpond.drops import Drop
from millpond.errors import ProcessingFailed, SerializationError
from millpond.serdes import Serde
from millpond.topology import ConsumerRecordView, FailOnInvalidTimestamp, SourceNode
from millpond.user_code import place_of

from .context import TaskContext, headers_of
from .drop_log import moment
from .environment import Environment
from .handlers import Handlers, UnreadableInternalRecord
from .record_queue import BadRecord, Decoder, ExtractTimestamp

__all__ = ("make_decoder", "on_bad_record")


def make_decoder(source: SourceNode, topic: str, task: TaskContext, environment: Environment) -> Decoder:
    """Return the decoder of one topic of a source, by its name in Kafka, for one task."""
    key = environment.key_serde(source.key, source.name, topic)
    value = environment.value_serde(source.value, source.name, topic)
    extractor = source.timestamp_extractor or environment.default_timestamp_extractor
    if isinstance(extractor, FailOnInvalidTimestamp):
        extractor = None  # `_extraction` does the same, without a call per record

    internal = topic in map(environment.real_topic, environment.internal_topics)

    def dropped() -> None:
        task.drop(source.name, Drop.INVALID_TIMESTAMP)

    def in_seconds(timestamp: int) -> None:
        if internal:
            return  # it has been told of the input
        environment.drop_log.warn_once(
            ("seconds", topic),
            "source %r: a record of topic %r has the timestamp %d, which is %s in milliseconds, and looks like "
            "seconds. Timestamps are epoch milliseconds: multiply by 1000 in timestamp=, or in the producer.",
            source.name, topic, timestamp, moment(timestamp),
        )  # fmt: skip

    return Decoder(
        key.deserialize,
        value.deserialize,
        _extraction(extractor, source.name, task),
        trust_timestamps=extractor is None,
        on_bad_record=on_bad_record(source.name, task, environment.handlers, key, value, internal=internal),
        dropped=dropped,
        in_seconds=in_seconds,
        headers=(key.header, value.header),
    )


def on_bad_record(  # noqa: PLR0913 - what is known of the source
    node: str, task: TaskContext, handlers: Handlers, key: Serde[Any], value: Serde[Any], *, internal: bool = False
) -> Callable[[BadRecord], None]:
    """Return the function that calls the deserialization handler (KIP-161) for a bad record, with the serde's words.

    Args:
        node: the name of the source.
        task: the task.
        handlers: the handlers of the application.
        key: the serde of keys.
        value: the serde of values.
        internal: whether the topic is the application's own.
    """

    def explained(bad: BadRecord) -> Exception:
        serde, data = (key, bad.message.key()) if bad.part == "key" else (value, bad.message.value())
        error = bad.error
        if not isinstance(error, SerializationError) and isinstance(data, bytes):
            error = serde.decoding_failed(data, error)
            error.__cause__ = bad.error
        return UnreadableInternalRecord(bad.message.topic() or "", error) if internal else error

    def handle(bad: BadRecord) -> None:
        task.message = bad.message
        context = handlers.describe("Decoding", node, task)
        try:
            handlers.handle(handlers.deserialization, context, explained(bad), task)
        finally:
            task.message = None

    return handle


def _extraction(extractor: Any, node: str, task: TaskContext) -> ExtractTimestamp:
    """Return the function that calls the timestamp extractor. Without one, a negative timestamp stops the worker."""

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
                    f"(task {task.task_id}): {_cause(error)}. Its offset is not committed."
                ) from error
        if timestamp < 0:
            raise ProcessingFailed(
                f"the record at {topic}-{partition} offset {offset} has no valid timestamp ({timestamp}). Give its "
                f"source '{node}' a timestamp extractor, such as LogAndSkipOnInvalidTimestamp or "
                f"UsePartitionTimeOnInvalidTimestamp."
            )
        return timestamp

    return extract


def _cause(error: Exception) -> str:
    if isinstance(error, ProcessingFailed):
        return str(error).removesuffix(".")
    place = place_of(error)
    return f"{type(error).__name__}: {error}{f' ({place})' if place else ''}"
