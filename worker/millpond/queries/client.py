"""The Python client: query the state stores of an application from any program.

    with Client("http://localhost:8080") as client:
        counts = client.store("counts")
        counts.get("JFK")
        for row in counts.range("A", "M", limit=10):
            print(row.key, row.value)

Without serdes, keys and values are JSON values. With the store's own serdes (`client.store("delays", key=mp.String,
value=mp.Json(Delay))`) they are sent as bytes and returned as the application's own types.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack, overload

import msgspec

from millpond.errors import ConfigError
from millpond.serdes import Serde, Window

from .failures import Failure, FailureReason, QueryFailed
from .members import Coordinator
from .transport import Transport

__all__ = ("Answer", "Client", "KeyOptions", "Options", "RangeOptions", "Row", "Rows", "Store", "WindowRow")

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

Isolation = Literal["read_committed", "read_uncommitted"]
Time = datetime | int
"""A datetime (UTC if it has no time zone), or epoch milliseconds."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options(TypedDict, total=False):
    """Options of every query."""

    max_staleness: timedelta
    """Allow standbys that were caught up at most this long ago."""
    max_lag: int
    """Allow standbys with at most this lag, in changelog records."""
    position: Mapping[str, int]
    """Wait until the rows include all input below these offsets, by `topic-partition`: the `position` of an earlier
    answer, or the offset of a produced record + 1."""
    isolation: Isolation
    """`read_committed` unless given."""
    timeout: timedelta
    """How long to wait for an owner or for the position; the default is the client's timeout (10 s)."""


class KeyOptions(Options, total=False):
    """Options of a query for one key."""

    partition: int
    """The partition of the key; needed if the producer did not choose it by murmur2 of the key."""


class RangeOptions(KeyOptions, total=False):
    """Options of a query for many rows."""

    reverse: bool
    """Whether to return the rows in descending order."""
    limit: int
    """The largest number of rows to return."""


@dataclass(frozen=True)
class Answer(Generic[V]):
    """The answer to a query for one key."""

    found: bool
    value: V | None
    timestamp: int | None
    """Timestamp of the record that made the value, epoch ms; None for a store without timestamps."""
    partition: int
    position: Mapping[str, int]
    """Next offsets by `topic-partition`: all input below them is in the value; empty when a standby answered."""
    staleness: timedelta | None
    """How long ago the standby that answered was caught up; None when the active task answered."""
    worker: str
    """The worker that answered."""


@dataclass(frozen=True, slots=True)
class Row(Generic[K, V]):
    """A row of a key-value store."""

    key: K
    value: V
    timestamp: int | None = None
    """Timestamp of the record that made the value, epoch ms; None for a store without timestamps."""


@dataclass(frozen=True, slots=True)
class WindowRow(Generic[K, V]):
    """A row of a window store, or of a session store, where the window is the session."""

    key: K
    window: Window
    value: V
    timestamp: int | None = None
    """Timestamp of the record that made the value, epoch ms; None for a store without timestamps."""


@dataclass(frozen=True, slots=True)
class VersionRow(Generic[K, V]):
    """A value of a versioned store, and the time in which it is valid."""

    key: K
    value: V
    timestamp: int
    """The time from which the value is valid, epoch ms."""
    valid_to: int | None
    """The time at which the next version begins, epoch ms; None for the latest one."""


class Rows(Generic[R]):
    """The rows of an answer, one at a time as they arrive. Leaving the loop early closes the connection.

    Attributes:
        complete: whether all rows have arrived.
        count: the number of rows that have arrived.
        position: when complete, next offsets by `topic-partition`: all input below them is in the rows.
        staleness: when complete, how long ago the most outdated standby that answered was caught up; None when only
            active tasks answered.
        snapshot: when complete, whether the rows of each partition are of one moment. They may not be in a long
            answer, or in one that continued on another worker.
        workers: when complete, the workers that answered.
    """

    def __init__(self, lines: Iterator[bytes], row: Callable[[dict[str, Any]], R]) -> None:
        self.complete: bool = False
        self.count: int = 0
        self.position: Mapping[str, int] = {}
        self.staleness: timedelta | None = None
        self.snapshot: bool = False
        self.workers: tuple[str, ...] = ()
        self._lines = lines
        self._row = row

    def __iter__(self) -> Iterator[R]:
        """Yield the rows.

        Raises:
            QueryFailed: the answer was cut off, or the workers could not complete it.
        """
        decode, row = msgspec.json.decode, self._row
        for line in self._lines:
            content = decode(line)
            if "complete" not in content:
                self.count += 1
                yield row(content)
                continue
            if not content["complete"]:
                raise QueryFailed.of(msgspec.convert(content["error"], Failure))
            self.complete = True
            self.position = content["position"]
            self.staleness = _milliseconds(content["staleness_ms"])
            self.snapshot = content["snapshot"]
            self.workers = tuple(content["workers"])
        if not self.complete:
            raise QueryFailed(
                FailureReason.NOT_PRESENT,
                f"the answer was cut off after {self.count} rows: retry, or ask for fewer rows.",
            )


@dataclass(frozen=True)
class Store(Generic[K, V]):
    """A store of the application. The options of its queries are `Options`, `KeyOptions` and `RangeOptions`.

    A query that fails raises `QueryFailed`; programs can act on its `reason`.
    """

    name: str
    _transport: Transport = field(repr=False)
    _timeout: timedelta
    _key: Serde[K] | None = None
    _value: Serde[V] | None = None

    def get(self, key: K, **options: Unpack[KeyOptions]) -> V | None:
        """Return the value of a key; None when the store does not contain it."""
        return self.lookup(key, **options).value

    def lookup(self, key: K, **options: Unpack[KeyOptions]) -> Answer[V]:
        """Return the value of a key, with its position, staleness and the worker that answered."""
        return self._one(("keys", self._encoded(key)), {}, options)

    def range(self, low: K | None = None, high: K | None = None, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """Return rows with low <= key <= high of all partitions, in the order of the keys' bytes; None is no bound."""
        return self._rows(("range",), self._bounds(low, high), options)

    def prefix(self, prefix: Any, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """Return rows whose serialised key begins with the serialised `prefix`; bytes are used unchanged."""
        if isinstance(prefix, bytes):
            query = {"prefix": base64.b64encode(prefix).decode("ascii"), "key_format": "base64"}
        else:
            query = {"prefix": self._encoded(prefix)}
        return self._rows(("prefix",), query, options)

    def all(self, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """Return all rows of a key-value store, in the order of the keys' bytes."""
        return self._rows(("all",), {}, options)

    def fetch(
        self, key: K, start: Time | None = None, end: Time | None = None, **options: Unpack[RangeOptions]
    ) -> Rows[WindowRow[K, V]]:
        """Return the windows of a key that start between two times (inclusive; None is no bound), by start."""
        return self._window_rows(("windows", self._encoded(key)), _between(start, end), options)

    def fetch_one(self, key: K, start: Time, **options: Unpack[KeyOptions]) -> V | None:
        """Return the value of a key in the window that starts at a time; None when the store does not contain it."""
        return self._one(("windows", self._encoded(key)), {"start": _time(start)}, options).value

    def fetch_range(
        self,
        low: K | None = None,
        high: K | None = None,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[RangeOptions],
    ) -> Rows[WindowRow[K, V]]:
        """Return the windows of a range of keys, by segment, key and start. Bounds are inclusive; None is no bound."""
        return self._window_rows(("windows",), self._bounds(low, high) | _between(start, end), options)

    def sessions(
        self, key: K, start: Time | None = None, end: Time | None = None, **options: Unpack[RangeOptions]
    ) -> Rows[WindowRow[K, V]]:
        """Return the sessions of a key that overlap with the time between two times (inclusive; None is no bound).

        A session that ends at `start`, or starts at `end`, is one of them, as for `SessionStore.find_sessions`.
        """
        return self._window_rows(("sessions", self._encoded(key)), _between(start, end), options)

    def fetch_session(self, key: K, start: Time, end: Time, **options: Unpack[KeyOptions]) -> V | None:
        """Return the value of the session of a key with exactly this start and end; None without one."""
        times = {"start": _time(start), "end": _time(end)}
        return self._one(("sessions", self._encoded(key)), times, options).value

    def sessions_range(
        self,
        low: K | None = None,
        high: K | None = None,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[RangeOptions],
    ) -> Rows[WindowRow[K, V]]:
        """Return the sessions of a range of keys, by segment, key, end and start; see `sessions`."""
        return self._window_rows(("sessions",), self._bounds(low, high) | _between(start, end), options)

    def get_as_of(self, key: K, as_of: Time, **options: Unpack[KeyOptions]) -> V | None:
        """Return the value that a key of a versioned store had at a time; None without one. `get` has the latest."""
        return self._one(("keys", self._encoded(key)), {"as_of": _time(as_of)}, options).value

    def versions(
        self, key: K, start: Time | None = None, end: Time | None = None, **options: Unpack[RangeOptions]
    ) -> Rows[VersionRow[K, V]]:
        """Return the values of a key of a versioned store that were valid between two times (inclusive), by time."""

        def row(content: dict[str, Any]) -> VersionRow[K, V]:
            decoded, value = self._decoded(self._key, content["key"]), self._decoded(self._value, content["value"])
            return VersionRow(decoded, value, content["timestamp"], content["valid_to"])

        return Rows(self._lines(("versions", self._encoded(key)), _between(start, end), options), row)

    def _one(self, path: tuple[str, ...], query: dict[str, str], options: Mapping[str, Any]) -> Answer[V]:
        parameters, timeout_s = self._parameters(query, options)
        found = self._transport.one(("stores", self.name, *path), parameters, timeout_s)
        return Answer(
            found["found"],
            self._decoded(self._value, found["value"]) if found["found"] else None,
            found.get("timestamp"),
            found["partition"],
            found["position"],
            _milliseconds(found["staleness_ms"]),
            next(iter(found["workers"]), ""),
        )

    def _rows(self, path: tuple[str, ...], query: dict[str, str], options: Mapping[str, Any]) -> Rows[Row[K, V]]:
        def row(content: dict[str, Any]) -> Row[K, V]:
            key, value = self._decoded(self._key, content["key"]), self._decoded(self._value, content["value"])
            return Row(key, value, content.get("timestamp"))

        return Rows(self._lines(path, query, options), row)

    def _window_rows(
        self, path: tuple[str, ...], query: dict[str, str], options: Mapping[str, Any]
    ) -> Rows[WindowRow[K, V]]:
        def row(content: dict[str, Any]) -> WindowRow[K, V]:
            key, value = self._decoded(self._key, content["key"]), self._decoded(self._value, content["value"])
            window = content["window"]
            return WindowRow(key, Window(window["start"], window["end"]), value, content.get("timestamp"))

        return Rows(self._lines(path, query, options), row)

    def _lines(self, path: tuple[str, ...], query: dict[str, str], options: Mapping[str, Any]) -> Iterator[bytes]:
        parameters, timeout_s = self._parameters(query, options)
        return self._transport.lines(("stores", self.name, *path), parameters, timeout_s)

    def _encoded(self, key: Any) -> str:
        if self._key is not None:
            return base64.b64encode(self._key.serialize(key)).decode("ascii")
        return msgspec.json.encode(key).decode()

    def _decoded(self, serde: Serde[Any] | None, content: Any) -> Any:
        return content if serde is None else serde.deserialize(base64.b64decode(content))

    def _bounds(self, low: K | None, high: K | None) -> dict[str, str]:
        given = {"low": low, "high": high}
        return {name: self._encoded(key) for name, key in given.items() if key is not None}

    def _parameters(self, query: dict[str, str], options: Mapping[str, Any]) -> tuple[dict[str, str], float]:
        unknown = set(options) - RangeOptions.__annotations__.keys() - KeyOptions.__annotations__.keys()
        unknown -= Options.__annotations__.keys()
        if unknown:
            raise TypeError(f"unknown query option '{min(unknown)}'")
        timeout: timedelta = options.get("timeout", self._timeout)
        form = "json" if self._key is None else "base64"
        parameters = {"timeout": f"{timeout // _MILLISECOND}ms", "key_format": form, "format": form, **query}
        if "max_staleness" in options:
            parameters["max_staleness"] = f"{options['max_staleness'] // _MILLISECOND}ms"
        if "position" in options:
            parameters["position"] = ",".join(f"{name}:{offset}" for name, offset in options["position"].items())
        if options.get("reverse"):
            parameters["reverse"] = "true"
        for name in ("max_lag", "isolation", "partition", "limit"):
            if name in options:
                parameters[name] = str(options[name])
        return parameters, timeout.total_seconds()


class Client:
    """A client for the workers of an application. Thread-safe; a `Rows` is for one thread."""

    def __init__(  # noqa: PLR0913 - how workers and the coordinator are reached
        self,
        *urls: str,
        timeout: timedelta = timedelta(seconds=10),
        token_file: Path | None = None,
        ca_file: Path | None = None,
        coordinator_url: str | None = None,
        application_id: str | None = None,
        coordinator_token_file: Path | None = None,
        coordinator_ca_file: Path | None = None,
    ) -> None:
        """Create the client; it connects with the first request.

        With a coordinator, the client asks it for the workers: at the first request, unless URLs are given, and when
        none of the known workers answers. So it finds workers that were started again at other addresses.

        Args:
            urls: base URLs of one or more workers; each of them answers for the whole application.
            timeout: how long a query waits for an owner or a position, unless the query sets its own timeout.
            token_file: file with a token of the workers' `query.token.file`; reread when it changes.
            ca_file: certificate authorities to trust (PEM); the default is those of the system.
            coordinator_url: base URL of the coordinator.
            application_id: the application whose workers the coordinator lists; given with `coordinator_url`.
            coordinator_token_file: file with the coordinator's token; read for each request to it.
            coordinator_ca_file: certificate authorities to trust at the coordinator (PEM).

        Raises:
            ConfigError: no URL is given, a URL is invalid, the coordinator or the application is missing, or a file
                cannot be read.
        """
        find = None
        if coordinator_url is not None or application_id is not None:
            if coordinator_url is None or application_id is None:
                raise ConfigError("a coordinator needs both coordinator_url and application_id.")
            find = Coordinator(coordinator_url, application_id, coordinator_token_file, coordinator_ca_file).workers
        self._transport = Transport(urls, token_file=token_file, ca_file=ca_file, find=find)
        self._timeout = timeout

    @overload
    def store(self, name: str) -> Store[Any, Any]: ...

    @overload
    def store(self, name: str, *, key: Serde[K], value: Serde[V]) -> Store[K, V]: ...

    def store(self, name: str, *, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> Store[Any, Any]:
        """Return a store by its name, without a request.

        Args:
            name: the name of the store in the topology.
            key: the serde of the store's keys; None for JSON values.
            value: the serde of the store's values; give both serdes or none.
        """
        if (key is None) != (value is None):
            raise TypeError("only one serde is given: give the serdes of both key and value, or none")
        return Store(name, self._transport, self._timeout, key, value)

    def stores(self) -> list[dict[str, Any]]:
        """Return the queryable stores: name, kind, partitions and serdes of each."""
        found: list[dict[str, Any]] = self._transport.one(("stores",), {}, self._timeout.total_seconds())["stores"]
        return found

    def metadata(self, store: str, key: Any) -> dict[str, Any]:
        """Return the location of a key: partition, task, active worker and standbys (name and address)."""
        path = ("metadata", store, msgspec.json.encode(key).decode())
        found: dict[str, Any] = self._transport.one(path, {"key_format": "json"}, self._timeout.total_seconds())
        return found

    def partitions(self, store: str) -> list[dict[str, Any]]:
        """Return the location of each partition of a store, as `metadata` does for a key."""
        path = ("metadata", store)
        found: list[dict[str, Any]] = self._transport.one(path, {}, self._timeout.total_seconds())["partitions"]
        return found

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _time(time: Time) -> str:
    if isinstance(time, int):
        return str(time)
    return str(((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND)


def _between(start: Time | None, end: Time | None) -> dict[str, str]:
    given = {"from": start, "to": end}
    return {name: _time(time) for name, time in given.items() if time is not None}


def _milliseconds(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)
