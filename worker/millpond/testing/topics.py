"""The two ends of a topology under test: topics to pipe records into and to read results from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, overload

from millpond.checks import kind_of
from millpond.dsl.durations import milliseconds
from millpond.errors import SerializationError, TopologyError
from millpond.serdes import Serde
from millpond.topology import Record
from millpond.topology.headers import NO_HEADERS, check_headers

__all__ = ("Instant", "RawRecord", "TestInputTopic", "TestOutputTopic", "epoch_ms")

K = TypeVar("K")
V = TypeVar("V")

#: A point in time: an aware datetime, or epoch milliseconds.
Instant = datetime | int

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)
_NOT_GIVEN: Any = object()

Headers = list[tuple[str, bytes | None]]


class RawRecord(NamedTuple):
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None


def epoch_ms(instant: Instant) -> int:
    """Epoch milliseconds of an instant.

    Raises:
        ValueError: a datetime without a time zone.
        TopologyError: neither a datetime nor an int.
    """
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise ValueError(f"{instant!r} has no time zone: give it one, for example tzinfo=UTC.")
        return (instant - _EPOCH) // _MILLISECOND
    if type(instant) is not int:
        raise TopologyError(
            f"A point in time is epoch milliseconds as an int, or a datetime with a time zone, not {kind_of(instant)}."
        )
    return instant


class TestInputTopic(Generic[K, V]):
    """Pipes records into a topic of the topology.

    Records without a timestamp take the topic's own time, which starts at `start` and goes on by `auto_advance`
    with every record.
    """

    __test__ = False  # not a test case for pytest

    def __init__(
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        pipe: Callable[[str, RawRecord], None],
        start_ms: int,
        auto_advance_ms: int,
    ) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._pipe = pipe
        self._time_ms = start_ms
        self._auto_advance_ms = auto_advance_ms

    @overload
    def pipe_input(self, value: V | Record[K, V] | None, /) -> None: ...
    @overload
    def pipe_input(
        self, key: K | None, value: V | None, /, timestamp: Instant | None = None, headers: Headers | None = None
    ) -> None: ...
    def pipe_input(
        self,
        first: Any,
        second: Any = _NOT_GIVEN,
        /,
        timestamp: Instant | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Pipe a value, a key and a value, or a `Record`, and process all that follows from it.

        Raises:
            SerializationError: the topic's serde cannot encode the key or the value.
            TopologyError: the timestamp is no point in time, or the headers are no list of pairs.
        """
        key, value = (None, first) if second is _NOT_GIVEN else (first, second)
        if second is _NOT_GIVEN and isinstance(first, Record):
            key, value, timestamp, headers = first.key, first.value, first.timestamp, first.headers
        if timestamp is None:
            timestamp_ms = self._time_ms
            self._time_ms += self._auto_advance_ms
        else:
            timestamp_ms = epoch_ms(timestamp)
        self._pipe(
            self.name,
            RawRecord(
                self._encoded(self._key, key, "key"),
                self._encoded(self._value, value, "value"),
                timestamp_ms,
                check_headers(headers) if headers else None,
            ),
        )

    def _encoded(self, serde: Serde[Any], given: Any, part: str) -> bytes | None:
        if given is None:
            return None
        try:
            return serde.serialize(given)
        except Exception as error:
            reason = serde.encoding_failed(given, error)
            raise SerializationError(
                f"The {part} piped into topic '{self.name}' does not fit its serde, given as {part}= to "
                f"create_input_topic(): {reason}"
            ) from error

    def pipe_key_value_list(
        self,
        records: Iterable[tuple[K | None, V | None]],
        start: Instant | None = None,
        advance: timedelta | None = None,
    ) -> None:
        """Pipe pairs; with `start` the first gets that time, and each next one is `advance` later."""
        step = milliseconds(advance or timedelta(), "advance")
        for index, (key, value) in enumerate(records):
            self.pipe_input(key, value, timestamp=None if start is None else epoch_ms(start) + index * step)

    def pipe_value_list(
        self, values: Iterable[V | None], start: Instant | None = None, advance: timedelta | None = None
    ) -> None:
        """As `pipe_key_value_list`, with null keys."""
        self.pipe_key_value_list(((None, value) for value in values), start, advance)

    def pipe_record_list(self, records: Iterable[Record[K, V]]) -> None:
        """Pipe records as they are."""
        for record in records:
            self.pipe_input(record)

    def advance_time(self, advance: timedelta) -> None:
        """Move the topic's own time on."""
        self._time_ms += milliseconds(advance, "advance")


class TestOutputTopic(Generic[K, V]):
    """Reads what the topology wrote to a topic, in order, each record once."""

    __test__ = False  # not a test case for pytest

    def __init__(self, name: str, key: Serde[K], value: Serde[V], records: deque[RawRecord]) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._records = records

    def read_record(self) -> Record[K, V]:
        """The next record.

        Raises:
            LookupError: the topic is empty.
        """
        if not self._records:
            raise LookupError(f"topic '{self.name}' has no more records: the topology wrote none, or all were read.")
        raw = self._records.popleft()
        key: Any = None if raw.key is None else self._key.deserialize(raw.key)
        value: Any = None if raw.value is None else self._value.deserialize(raw.value)
        return Record(key, value, raw.timestamp, NO_HEADERS if raw.headers is None else raw.headers)

    def read_value(self) -> V:
        """The next record's value."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """The next record's key and value."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[Record[K, V]]:
        """All records that are there."""
        return [self.read_record() for _ in range(len(self._records))]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Keys and values of all records that are there."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """The last value of each key; null keys are not allowed.

        Raises:
            ValueError: a record has a null key.
        """
        pairs = self.read_key_values_to_list()
        if any(key is None for key, _ in pairs):
            raise ValueError(
                f"topic '{self.name}' has records without a key: read them with read_key_values_to_list()."
            )
        return dict(pairs)

    def read_values_to_list(self) -> list[V]:
        """Values of all records that are there."""
        return [record.value for record in self.read_records_to_list()]

    def is_empty(self) -> bool:
        """Whether nothing is left to read."""
        return not self._records

    def get_queue_size(self) -> int:
        """How many records are left to read."""
        return len(self._records)
