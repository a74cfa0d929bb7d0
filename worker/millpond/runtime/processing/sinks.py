"""The sinks of a sub-topology: they serialize records into the task's outbox.

librdkafka chooses partitions (murmur2, as in Java), unless the sink has a partitioner. A windowed key goes to the
partition of its inner key (Kafka Streams' `WindowedStreamPartitioner`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from operator import add
from typing import Any

from confluent_kafka import murmur2

from millpond.checks import kind_of
from millpond.errors import BrokerError, TopicError
from millpond.serdes import Serde
from millpond.state.formats import window_start
from millpond.state.stores.flush_columns import Columns, TakeColumns, with_columns
from millpond.topology import RecordContext, SinkNode

from .context import TaskContext
from .encoding_errors import explain_sink_error
from .environment import Environment

__all__ = ("bind_sink",)

Forward = Callable[..., None]

#: The partition that lets librdkafka's murmur2 partitioner choose.
ANY = -1


def bind_sink(sink: SinkNode, task: TaskContext, environment: Environment) -> Forward:
    """Return the function that serializes a record and appends it to the outbox.

    A schema registry that cannot be reached is no fault of a record: its error stops the worker, as in other nodes.
    A topic that does not exist is one, if a function chose it for the record.
    """
    handlers = environment.handlers

    def failed(error: Exception, key: Any, value: Any, timestamp: int) -> None:
        if isinstance(error, BrokerError) and not isinstance(error, TopicError):
            raise error
        if isinstance(sink.topic, str):
            error = explain_sink_error(error, topic, key, key_serde, value, value_serde)
        context = handlers.describe("Producing", sink.name, task, (key, value, timestamp))
        handlers.handle(handlers.production, context, error, task)

    if isinstance(sink.topic, str):
        topic = environment.real_topic(sink.topic)
        key_serde = environment.key_serde(sink.key, sink.name, topic)
        value_serde = environment.value_serde(sink.value, sink.name, topic)
        if sink.partitioner is None:
            if key_serde.partition_by is None:
                return _static_sink(topic, key_serde, value_serde, task, failed)
            count = environment.partition_count(topic)
            return _key_part_sink(topic, count, key_serde.partition_by, key_serde, value_serde, task, failed)
        return _dynamic_sink(lambda _key, _value, _timestamp: topic, sink, task, environment, failed)
    return _dynamic_sink(_topic_of(sink.topic, task), sink, task, environment, failed)


def _static_sink(
    topic: str, key_serde: Serde[Any], value_serde: Serde[Any], task: TaskContext, failed: Forward
) -> Forward:
    """Return a sink for one topic whose partitions librdkafka chooses."""
    serialize_key = key_serde.serialize
    serialize_value = value_serde.serialize
    append = task.outbox.append

    def sink(key: Any, value: Any, timestamp: int) -> None:
        try:
            raw_key = None if key is None else serialize_key(key)
            raw_value = None if value is None else serialize_value(value)
        except Exception as error:  # noqa: BLE001 - serdes may be user code
            failed(error, key, value, timestamp)
            return
        headers = task.headers
        if headers is None:
            append((topic, raw_value, raw_key, ANY, None, None, timestamp))
        else:
            append((topic, raw_value, raw_key, ANY, None, None, timestamp, headers))

    return with_columns(sink, _column_sink(topic, None, key_serde, value_serde, task))


def _key_part_sink(  # noqa: PLR0913 - two calls, with everything a record needs
    topic: str,
    count: int,
    partition_by: Callable[[bytes], bytes],
    key_serde: Serde[Any],
    value_serde: Serde[Any],
    task: TaskContext,
    failed: Forward,
) -> Forward:
    """Return a sink for one topic in which a part of the key decides the partition."""
    serialize_key = key_serde.serialize
    serialize_value = value_serde.serialize
    append = task.outbox.append

    def sink(key: Any, value: Any, timestamp: int) -> None:
        try:
            raw_key = None if key is None else serialize_key(key)
            raw_value = None if value is None else serialize_value(value)
        except Exception as error:  # noqa: BLE001 - serdes may be user code
            failed(error, key, value, timestamp)
            return
        partition = ANY if raw_key is None else murmur2(partition_by(raw_key), count)
        headers = task.headers
        if headers is None:
            append((topic, raw_value, raw_key, partition, None, None, timestamp))
        else:
            append((topic, raw_value, raw_key, partition, None, None, timestamp, headers))

    return with_columns(sink, _column_sink(topic, count, key_serde, value_serde, task))


def _raw_keys_of(columns: Columns, key_serde: Serde[Any]) -> Sequence[bytes]:
    """Return the keys of columns as the serde serializes them; their windows are appended where that is the same."""
    starts = columns.starts
    if starts is not None:
        if key_serde.inner is not columns.key_serde:
            return list(map(key_serde.serialize, columns.keys()))
        return list(map(add, columns.raw_keys, map(window_start, starts)))
    window = columns.window
    if window is None and key_serde is columns.key_serde:
        return columns.raw_keys
    if window is not None and key_serde.inner is columns.key_serde:
        start = window_start(window[0])
        return [raw_key + start for raw_key in columns.raw_keys]
    return list(map(key_serde.serialize, columns.keys()))


def _column_sink(
    topic: str, count: int | None, key_serde: Serde[Any], value_serde: Serde[Any], task: TaskContext
) -> TakeColumns | None:
    """Return a sink for whole columns: as `_static_sink`, or as `_key_part_sink` with a partition count.

    If the sink's serde is the store's, the bytes of the store's changelog records are sent as they are.
    """
    outbox = task.outbox
    if type(outbox) is not list:
        return None  # in careful mode the outbox needs each record by itself
    partition_by = key_serde.partition_by

    def take(columns: Columns) -> bool:
        if task.headers is not None:
            return False
        try:
            raw_keys = _raw_keys_of(columns, key_serde)
            same = value_serde is columns.value_serde
            data = columns.data if same else list(map(value_serde.serialize, columns.values()))
            partitions: Iterable[int] = repeat(ANY)
            if partition_by is not None and count is not None:
                inner = columns.raw_keys if key_serde.inner is columns.key_serde else map(partition_by, raw_keys)
                partitions = list(map(murmur2, inner, repeat(count)))
        except BrokerError:
            raise  # a schema registry does not answer, and would be asked again for the record by itself
        except Exception:  # noqa: BLE001 - serdes may be user code
            return False  # the record fails again when it is sent by itself, and then the handler is called
        outbox.extend(zip(repeat(topic), data, raw_keys, partitions, repeat(None), repeat(None), columns.timestamps))
        return True

    return take


def _dynamic_sink(
    topic_of: Callable[[Any, Any, int], str],
    sink: SinkNode,
    task: TaskContext,
    environment: Environment,
    failed: Forward,
) -> Forward:
    """Return a sink with a topic computed per record, or with a partitioner."""
    routes: dict[str, tuple[Serde[Any], Serde[Any], Callable[..., Any] | None]] = {}
    append = task.outbox.append

    def route(topic: str) -> tuple[Serde[Any], Serde[Any], Callable[..., Any] | None]:
        if not isinstance(topic, str):
            raise TypeError(
                f"the function that names the topic of '{sink.name}' returned {kind_of(topic)}; it must return a text"
            )
        environment.partition_count(topic)  # raises if the topic does not exist: its records would wait for ever
        key_serde = environment.key_serde(sink.key, sink.name, topic)
        value_serde = environment.value_serde(sink.value, sink.name, topic)
        routes[topic] = found = key_serde, value_serde, _chooser(sink, key_serde, topic, environment)
        return found

    def dynamic(key: Any, value: Any, timestamp: int) -> None:
        try:
            topic = topic_of(key, value, timestamp)
            key_serde, value_serde, choose = routes.get(topic) or route(topic)
            raw_key = None if key is None else key_serde.serialize(key)
            raw_value = None if value is None else value_serde.serialize(value)
            partitions = (ANY,) if choose is None else choose(key, value, raw_key)
        except Exception as error:  # noqa: BLE001 - serdes may be user code
            failed(error, key, value, timestamp)
            return
        headers = task.headers
        for partition in partitions:
            if headers is None:
                append((topic, raw_value, raw_key, partition, None, None, timestamp))
            else:
                append((topic, raw_value, raw_key, partition, None, None, timestamp, headers))

    return dynamic


def _topic_of(extract: Callable[..., str], task: TaskContext) -> Callable[[Any, Any, int], str]:
    def topic_of(key: Any, value: Any, timestamp: int) -> str:
        return extract(key, value, RecordContext(task.topic, task.partition, task.offset, timestamp, task.headers))

    return topic_of


def _chooser(
    sink: SinkNode, key_serde: Serde[Any], topic: str, environment: Environment
) -> Callable[[Any, Any, bytes | None], Any] | None:
    """Return the function that chooses partitions (none to drop a record, KIP-837), or None if librdkafka chooses."""
    partitioner = sink.partitioner
    if partitioner is not None:
        count = environment.partition_count(topic)

        def chosen(key: Any, value: Any, _raw_key: bytes | None) -> Any:
            partitions = partitioner(topic, key, value, count)
            if partitions is None:
                return (ANY,)
            if type(partitions) is tuple and len(partitions) == 1:
                return partitions
            if not isinstance(partitions, Collection):
                raise TypeError(
                    f"the partitioner of '{sink.name}' returned {kind_of(partitions)}; it must return a list of "
                    "partitions, such as [3], or None for the default"
                )
            return sorted(partitions)

        return chosen
    partition_by = key_serde.partition_by
    if partition_by is not None:
        count = environment.partition_count(topic)

        def partial(_key: Any, _value: Any, raw_key: bytes | None) -> Any:
            return (ANY,) if raw_key is None else (murmur2(partition_by(raw_key), count),)

        return partial
    return None
