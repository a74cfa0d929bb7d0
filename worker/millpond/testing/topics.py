"""The topics of a test, which pipe records into a topology or read its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, overload

from millpond.checks import kind_of
from millpond.dsl.durations import milliseconds
from millpond.errors import SerializationError, TopologyError
from millpond.serdes import Serde
from millpond.times import epoch_ms as exact_ms
from millpond.topology import Record
from millpond.topology.headers import NO_HEADERS, check_headers

__all__ = ("Instant", "RawRecord", "TestInputTopic", "TestOutputTopic", "epoch_ms")

K = TypeVar("K")
V = TypeVar("V")

Instant = datetime | int
"""A point in time: an aware datetime, or epoch ms."""

_MILLISECOND = timedelta(milliseconds=1)
_NOT_GIVEN: Any = object()

Headers = list[tuple[str, bytes | None]]


class RawRecord(NamedTuple):
    """A record as bytes."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers | None


def epoch_ms(instant: Instant) -> int:
    """Return an instant in epoch ms.

    Raises:
        ValueError: the instant is a datetime without a time zone.
        TopologyError: the instant is neither a datetime nor an int.
    """
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise ValueError(f"{instant!r} has no time zone; give it one, for example tzinfo=UTC.")
        return exact_ms(instant)
    if type(instant) is not int:
        raise TopologyError(
            f"A point in time is epoch milliseconds as an int, or a datetime with a time zone, not {kind_of(instant)}."
        )
    return instant


class TestInputTopic(Generic[K, V]):
    """A topic to pipe records into.

    A record without a timestamp gets the topic's own time. It starts at `start`, and each of these records advances it
    by `auto_advance`.
    """

    __test__ = False  # not a test case for pytest

    def __init__(  # noqa: PLR0913 - the driver makes it
        self,
        name: str,
        key: Serde[K],
        value: Serde[V],
        pipe: Callable[[str, Iterable[RawRecord]], None],
        start_ms: int,
        auto_advance_ms: int,
    ) -> None:
        self.name = name
        self._key = key.for_topic(name, True)  # noqa: FBT003 - positional, as in Kafka's serializers
        self._value = value.for_topic(name, False)  # noqa: FBT003 - positional, as in Kafka's serializers
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
        """Pipe a value, a key and a value, or a `Record`, and process all that results from it.

        Steps that take several records together, such as `map_batches()`, get this one alone. The methods for lists
        give them all records of the list together, as a worker may.

        Raises:
            SerializationError: the topic's serde cannot encode the key or the value.
            TopologyError: the topology does not read the topic, the timestamp is not a point in time, or the headers
                are not a list of pairs.
        """
        self._pipe(self.name, [self._raw(first, second, timestamp, headers)])

    def _raw(self, first: Any, second: Any, timestamp: Instant | None, headers: Headers | None = None) -> RawRecord:
        key, value = (None, first) if second is _NOT_GIVEN else (first, second)
        if second is _NOT_GIVEN and isinstance(first, Record):
            key, value, timestamp, headers = first.key, first.value, first.timestamp, first.headers
        if timestamp is None:
            timestamp_ms = self._time_ms
            self._time_ms += self._auto_advance_ms
        else:
            timestamp_ms = epoch_ms(timestamp)
        return RawRecord(
            self._encoded(self._key, key, "key"),
            self._encoded(self._value, value, "value"),
            timestamp_ms,
            check_headers(headers) if headers else None,
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
        """Pipe (key, value) pairs. With `start`, the first has that time, and each following one is `advance` later.

        Raises:
            TopologyError: `advance` is given without `start`.
        """
        if advance is not None and start is None:
            raise TopologyError(
                "advance= counts from start=, which is not given; give both, or auto_advance= to create_input_topic()."
            )
        step = milliseconds(advance or timedelta(), "advance")
        self._pipe(
            self.name,
            (
                self._raw(key, value, None if start is None else epoch_ms(start) + index * step)
                for index, (key, value) in enumerate(records)
            ),
        )

    def pipe_value_list(
        self, values: Iterable[V | None], start: Instant | None = None, advance: timedelta | None = None
    ) -> None:
        """Pipe values with null keys. See `pipe_key_value_list`."""
        self.pipe_key_value_list(((None, value) for value in values), start, advance)

    def pipe_record_list(self, records: Iterable[Record[K, V]]) -> None:
        """Pipe records, with their timestamps and headers."""
        self._pipe(self.name, (self._raw(record, _NOT_GIVEN, None) for record in records))

    def advance_time(self, advance: timedelta) -> None:
        """Advance the topic's own time."""
        self._time_ms += milliseconds(advance, "advance")


class TestOutputTopic(Generic[K, V]):
    """A topic to read results from: each record that the topology wrote, once and in order."""

    __test__ = False  # not a test case for pytest

    def __init__(self, name: str, key: Serde[K], value: Serde[V], records: deque[RawRecord]) -> None:
        self.name = name
        self._key = key
        self._value = value
        self._records = records

    def read_record(self) -> Record[K, V]:
        """Return the next record.

        Raises:
            LookupError: no record is left.
        """
        if not self._records:
            raise LookupError(
                f"topic '{self.name}' has no more records, because the topology wrote none or all were read; call "
                "is_empty() first."
            )
        raw = self._records.popleft()
        key: Any = None if raw.key is None else self._key.deserialize(self._key.framed(raw.key, raw.headers))
        value: Any = None if raw.value is None else self._value.deserialize(self._value.framed(raw.value, raw.headers))
        return Record(key, value, raw.timestamp, NO_HEADERS if raw.headers is None else raw.headers)

    def read_value(self) -> V:
        """Return the next record's value."""
        return self.read_record().value

    def read_key_value(self) -> tuple[K, V]:
        """Return the next record's key and value."""
        record = self.read_record()
        return record.key, record.value

    def read_records_to_list(self) -> list[Record[K, V]]:
        """Return all remaining records."""
        return [self.read_record() for _ in range(len(self._records))]

    def read_key_values_to_list(self) -> list[tuple[K, V]]:
        """Return keys and values of all remaining records."""
        return [(record.key, record.value) for record in self.read_records_to_list()]

    def read_key_values_to_map(self) -> dict[K, V]:
        """Return the last value of each key of all remaining records.

        Raises:
            ValueError: a record has a null key.
        """
        pairs = self.read_key_values_to_list()
        if any(key is None for key, _ in pairs):
            raise ValueError(
                f"topic '{self.name}' has records without a key; read them with read_key_values_to_list()."
            )
        return dict(pairs)

    def read_values_to_list(self) -> list[V]:
        """Return the values of all remaining records."""
        return [record.value for record in self.read_records_to_list()]

    def is_empty(self) -> bool:
        """Return whether no records remain."""
        return not self._records

    def get_queue_size(self) -> int:
        """Return the number of remaining records."""
        return len(self._records)
