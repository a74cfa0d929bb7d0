"""The queues between the consumer and the sub-topology: decoded records, one queue per input partition.

A chunk is the result of one poll for one partition, deserialized column by column: C loops over batches instead of work
per record. The deserialization handler is called for a bad record in its turn, not before: so its dead letters are
committed together with the offset after the record, and not sent again after a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import itemgetter, length_hint
from typing import Any, NamedTuple

from confluent_kafka import Message

from millpond.durations import seem_seconds
from millpond.errors import BrokerError, SerializationError
from millpond.serdes.serde import framed

__all__ = ("Chunk", "Decoder", "RecordQueue")

_key = Message.key
_value = Message.value
_timestamp = Message.timestamp
_headers = Message.headers
_second = itemgetter(1)
#: Stands for headers that the client cannot return, since a name of them is not UTF-8, and what it raises.
_UNREADABLE = object()
_READ_ERRORS = (SystemError, UnicodeDecodeError)
_NO_TEXT = "the name of a header is not UTF-8, so the headers cannot be read"

Deserialize = Callable[[Any], Any]

#: Timestamps that are looked at in one call of `max`: few, since the search may begin again after each record.
_BLOCK = 64


def _offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


class BadRecord(NamedTuple):
    """A record that could not be deserialized: the message, the error, and `key` or `value`."""

    message: Message
    error: Exception
    part: str


class Chunk:
    """Deserialized records of one partition as parallel columns, and the offset after them.

    Bad records are kept apart, each with the index of the next good record.
    """

    __slots__ = (
        "bad",
        "end",
        "headers",
        "keys",
        "messages",
        "next_offset",
        "start",
        "timestamps",
        "values",
    )

    def __init__(  # noqa: PLR0913 - the columns
        self,
        messages: Sequence[Message],
        keys: list[Any],
        values: list[Any],
        timestamps: list[int],
        next_offset: int,
        bad: deque[tuple[int, BadRecord]] | None = None,
        headers: list[Any] | None = None,
    ) -> None:
        self.messages: Sequence[Message[bytes, bytes]] = messages
        self.keys: list[Any] = keys
        self.values: list[Any] = values
        self.timestamps: list[int] = timestamps
        self.next_offset: int = next_offset
        self.bad: deque[tuple[int, BadRecord]] | None = bad
        self.headers: list[Any] | None = headers
        self.start: int = 0
        self.end: int = len(messages)

    def until(self, time_ms: int, end: int) -> int:
        """Return the end of its records up to the first one of `time_ms` or later; at most `end`."""
        timestamps = self.timestamps
        for start in range(self.start, end, _BLOCK):
            block = timestamps[start : min(start + _BLOCK, end)]
            if max(block) >= time_ms:
                return start + next(index for index, each in enumerate(block, 1) if each >= time_ms)
        return end


#: Decides about a bad record: returns to drop it, raises to stop the worker.
OnBadRecord = Callable[[BadRecord], None]
#: (message, key, value, partition time) -> timestamp in epoch ms; negative drops the record.
ExtractTimestamp = Callable[[Message, Any, Any, int], int]
OnDropped = Callable[[], None]
OnSeconds = Callable[[int], None]


class Decoder:
    """The decoder of one source node's messages into chunks.

    With `trust_timestamps`, the extractor is called only for negative timestamps.
    """

    __slots__ = (
        "_deserialize_key",
        "_deserialize_value",
        "_dropped",
        "_extract",
        "_headers_of",
        "_id_headers",
        "_in_seconds",
        "on_bad_record",
        "trust_timestamps",
    )

    def __init__(  # noqa: PLR0913 - the functions of one source, in one call
        self,
        deserialize_key: Deserialize,
        deserialize_value: Deserialize,
        extract: ExtractTimestamp,
        *,
        trust_timestamps: bool,
        on_bad_record: OnBadRecord,
        dropped: OnDropped,
        in_seconds: OnSeconds,
        headers: tuple[str | None, str | None] = (None, None),
    ) -> None:
        self._deserialize_key = deserialize_key
        self._deserialize_value = deserialize_value
        self._extract = extract
        self.trust_timestamps: bool = trust_timestamps
        self.on_bad_record: OnBadRecord = on_bad_record
        self._dropped = dropped
        self._in_seconds = in_seconds
        # The headers with schema ids of key and value, which an output with other schemas must not have.
        self._id_headers = headers if any(headers) else None

    def decode(self, messages: Sequence[Message], partition_time: int) -> Chunk:
        """Deserialize `messages` of one partition, in offset order. No handler is called yet.

        A schema registry that does not answer is no fault of a record. It would not answer for the other records
        either, each of which takes the client's timeouts: so its first error ends the batch, and the worker.

        Args:
            messages: at least one message, none with an error.
            partition_time: the highest timestamp in this partition so far; -1 without one.

        Raises:
            BrokerError: a schema registry does not answer.
            ProcessingFailed: the timestamp extractor failed.
        """
        next_offset = _offset_of(messages[-1]) + 1
        raw_keys = list(map(_key, messages))
        raw_values = list(map(_value, messages))
        headers = _read_headers(messages)
        timestamps: list[int] = list(map(_second, map(_timestamp, messages)))
        readable = headers is None or _UNREADABLE not in headers
        if not readable:
            messages, headers = _without_unreadable(messages, headers or ())
        if self._id_headers is not None and headers is not None:
            raw_keys, raw_values = self._framed(self._id_headers, headers, raw_keys, raw_values)
            headers = [_other_headers(self._id_headers, each) for each in headers]
        lowest = min(timestamps)
        if self.trust_timestamps and seem_seconds(lowest):
            self._in_seconds(lowest)
        if readable and self.trust_timestamps and all(raw_keys) and all(raw_values) and lowest >= 0:
            try:
                keys = list(map(self._deserialize_key, raw_keys))
                values = list(map(self._deserialize_value, raw_values))
            except BrokerError:
                raise
            except Exception:  # noqa: BLE001 - serdes may be user code; `_decode_each` finds the record
                pass
            else:
                return Chunk(messages, keys, values, timestamps, next_offset, headers=headers)
        return self._decode_each(messages, raw_keys, raw_values, timestamps, headers, partition_time, next_offset)

    def _decode_each(  # noqa: PLR0913 - the columns
        self,
        messages: Sequence[Message],
        raw_keys: list[bytes | None],
        raw_values: list[bytes | None],
        timestamps: list[int],
        headers: list[Any] | None,
        partition_time: int,
        next_offset: int,
    ) -> Chunk:
        kept: list[Message] = []
        kept_headers: list[Any] = []
        bad: deque[tuple[int, BadRecord]] = deque()
        keys: list[Any] = []
        values: list[Any] = []
        times: list[int] = []
        all_headers = headers or repeat(None, len(messages))
        for message, raw_key, raw_value, timestamp, of_message in zip(
            messages, raw_keys, raw_values, timestamps, all_headers, strict=True
        ):
            if isinstance(message, _WithoutHeaders):
                bad.append((len(kept), BadRecord(message, SerializationError(_NO_TEXT), "headers")))
                continue
            part = "key"
            try:
                key = None if raw_key is None else self._deserialize_key(raw_key)
                part = "value"
                value = None if raw_value is None else self._deserialize_value(raw_value)
            except BrokerError:
                raise
            except Exception as error:  # noqa: BLE001 - serdes may be user code
                bad.append((len(kept), BadRecord(message, error, part)))
                continue
            if timestamp < 0 or not self.trust_timestamps:
                timestamp = self._extract(message, key, value, partition_time)
            if timestamp < 0:
                self._dropped()
                continue
            partition_time = max(partition_time, timestamp)
            kept.append(message)
            kept_headers.append(of_message)
            keys.append(key)
            values.append(value)
            times.append(timestamp)
        if times and not self.trust_timestamps and seem_seconds(times[0]):
            self._in_seconds(times[0])
        return Chunk(kept, keys, values, times, next_offset, bad or None, None if headers is None else kept_headers)

    def _framed(
        self,
        names: tuple[str | None, str | None],
        headers: list[Any],
        raw_keys: list[bytes | None],
        raw_values: list[bytes | None],
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return keys and values with the schema ids that are in headers."""
        raw_keys, raw_values = (
            [None if data is None else framed(name, data, each) for data, each in zip(column, headers, strict=True)]
            for name, column in zip(names, (raw_keys, raw_values), strict=True)
        )
        return raw_keys, raw_values


class _WithoutHeaders:
    """A message whose headers must not be read: a second attempt returns a broken list, with which Python may crash."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def headers(self) -> None:
        """Return no headers."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)


def _read_headers(messages: Sequence[Message]) -> list[Any] | None:
    """Return the headers of each message; None if none has any. `_UNREADABLE` stands for those with names without text.

    The client raises an error at the first attempt, whose place the iterator tells.
    """
    found: list[Any] = []
    remaining = iter(messages)
    try:
        if not any(map(_headers, remaining)):
            return None
    except _READ_ERRORS:
        failed = len(messages) - length_hint(remaining) - 1
        found = [*map(_headers, messages[:failed]), _UNREADABLE]
    remaining = iter(messages[len(found) :])
    while len(found) < len(messages):
        try:
            found.extend(map(_headers, remaining))
        except _READ_ERRORS:
            found.append(_UNREADABLE)
    return found


def _without_unreadable(messages: Sequence[Message], headers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return messages whose headers nobody can read by mistake, and the headers of the others."""
    pairs = zip(messages, headers, strict=True)
    kept = [_WithoutHeaders(message) if found is _UNREADABLE else message for message, found in pairs]
    return kept, [None if found is _UNREADABLE else found for found in headers]


def _other_headers(names: tuple[str | None, str | None], headers: list[Any] | None) -> list[Any] | None:
    return [each for each in headers if each[0] not in names] or None if headers else None


class RecordQueue:
    """The queue of one input partition.

    Attributes:
        topic: the topic's name in Kafka.
        chunks: chunks to process.
        position: the offset to commit: of the next record to process, or after the last polled one.
        fetch_position: the offset after the last polled record.
        partition_time: the highest timestamp processed; -1 if unknown. Offset metadata keeps it across restarts.
        buffered: number of records in the queue.
        consumed: number of records polled since the task was created.
        bad_first: bad records before the first chunk; the task's loop handles them.
        at_end: whether the broker has no more records (lag 0, KIP-695).
        first_timestamp: timestamp of the first record processed since the last `take_times`; -1 without one.
        last_timestamp: timestamp of the last one.
        idle_since_ms: the time since which the queue is empty at its end, in epoch milliseconds; None otherwise.
    """

    __slots__ = (
        "_decoded_time",
        "at_end",
        "bad_first",
        "buffered",
        "chunks",
        "consumed",
        "decoder",
        "entry",
        "fetch_position",
        "first_timestamp",
        "idle_since_ms",
        "last_timestamp",
        "partition_time",
        "position",
        "topic",
    )

    def __init__(self, topic: str, decoder: Decoder, entry: Callable[[Any, Any, int], None]) -> None:
        self.topic: str = topic
        self.decoder: Decoder = decoder
        self.entry: Callable[[Any, Any, int], None] = entry
        self.chunks: deque[Chunk] = deque()
        self.bad_first: deque[BadRecord] = deque()
        self.buffered: int = 0
        self.consumed: int = 0
        self.position: int = -1
        self.fetch_position: int = -1
        self.partition_time: int = -1
        self._decoded_time = -1
        self.at_end: bool = False
        self.idle_since_ms: int | None = None
        self.first_timestamp: int = -1
        self.last_timestamp: int = -1

    def add(self, messages: Sequence[Message]) -> None:
        """Add the messages of one poll. No handler is called for bad records yet, and no dead letter is sent.

        Raises:
            BrokerError, ProcessingFailed: see `Decoder.decode`.
        """
        self.consumed += len(messages)
        decoder = self.decoder
        chunk = decoder.decode(messages, max(self.partition_time, self._decoded_time))
        self.fetch_position = chunk.next_offset
        self.at_end = False
        if chunk.bad is not None:
            self._queue_bad(chunk)
        if not decoder.trust_timestamps:
            self._decoded_time = max(self._decoded_time, max(chunk.timestamps, default=-1))
        if chunk.end:
            self.chunks.append(chunk)
            self.buffered += chunk.end
        elif not self.chunks and not self.bad_first:
            self.position = chunk.next_offset

    def _queue_bad(self, chunk: Chunk) -> None:
        """Queue the bad records before the chunk's first good record: in `bad_first`, or after the last chunk."""
        bad = chunk.bad
        while bad and bad[0][0] == 0:
            _, record = bad.popleft()
            if self.chunks:
                last = self.chunks[-1]
                last.bad = deque() if last.bad is None else last.bad
                last.bad.append((last.end, record))
            else:
                self.bad_first.append(record)

    def handle_bad_first(self) -> None:
        """Call the handler for the records in `bad_first`, and move the position past them.

        Dead letters and position change together, between two commits: a commit contains both or neither.

        Raises:
            ProcessingFailed: the handler returned FAIL for a bad record.
        """
        while self.bad_first:
            self.decoder.on_bad_record(self.bad_first.popleft())
        self.position = _offset_of(self.chunks[0].messages[0]) if self.chunks else self.fetch_position

    def head_timestamp(self) -> int:
        """Return the timestamp of the next record. The queue must not be empty."""
        chunk = self.chunks[0]
        return chunk.timestamps[chunk.start]

    def run_end(self, bound: int | None, limit: int) -> int:
        """Return the end index, in the first chunk, of the records to process without a switch to another input.

        Args:
            bound: the highest timestamp to take, that of the next record of other partitions; None without a bound.
            limit: the maximum number of records to take.
        """
        chunk = self.chunks[0]
        start = chunk.start
        end = min(chunk.end, start + limit)
        if chunk.bad:
            end = min(end, chunk.bad[0][0])
        if bound is not None:
            timestamps = chunk.timestamps
            index = start + 1
            while index < end and timestamps[index] <= bound:
                index += 1
            end = index
        return end

    def advance(self, end: int) -> None:
        """Move past the records of the first chunk before `end`, and call the handler for the bad records that follow.

        Raises:
            ProcessingFailed: the handler returned FAIL for a bad record.
        """
        chunk = self.chunks[0]
        start = chunk.start
        timestamps = chunk.timestamps[start:end]
        self.partition_time = max(self.partition_time, max(timestamps))
        if self.first_timestamp < 0:
            self.first_timestamp = timestamps[0]
        self.last_timestamp = timestamps[-1]
        self.buffered -= end - start
        while chunk.bad and chunk.bad[0][0] <= end:
            self.decoder.on_bad_record(chunk.bad.popleft()[1])
        if end == chunk.end:
            self.chunks.popleft()
            self.position = _offset_of(self.chunks[0].messages[0]) if self.chunks else self.fetch_position
        else:
            chunk.start = end
            self.position = _offset_of(chunk.messages[end])

    def take_times(self) -> tuple[int, int] | None:
        """Return the timestamps of the first and the last record since the last call, in epoch ms; None without one."""
        first, self.first_timestamp = self.first_timestamp, -1
        return None if first < 0 else (first, self.last_timestamp)

    def reached_end(self, offset: int) -> bool:
        """Record that the broker has no records from `offset` on, and return whether the position moved.

        Earlier records may still be in the queue. Transaction markers behind the last record count as read.
        """
        if offset < self.fetch_position:
            return False
        self.at_end = True
        self.fetch_position = offset
        if self.chunks or self.bad_first or self.position == offset:
            return False
        self.position = offset
        return True

    def clear(self, position: int) -> None:
        """Drop all buffered records, and continue at `position`."""
        self.chunks.clear()
        self.bad_first.clear()
        self.buffered = 0
        self.position = self.fetch_position = position
        self._decoded_time = -1
        self.first_timestamp = -1
        self.at_end = False
        self.idle_since_ms = None
