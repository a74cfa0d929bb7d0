"""The Python client: what an application's stores hold, from any program.

    with Client("http://localhost:8080") as client:
        counts = client.store("counts")
        counts.get("JFK")
        for row in counts.range("A", "M", limit=10):
            print(row.key, row.value)

Without serdes, keys and values are what JSON makes of them. With the store's own serdes (`client.store("delays",
key=mp.String, value=mp.Json(Delay))`) they travel as bytes and are the application's own types.
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

from millpond.serdes import Serde, Window

from .failures import Failure, FailureReason, QueryFailed
from .transport import Transport

__all__ = ("Answer", "Client", "KeyOptions", "Options", "RangeOptions", "Row", "Rows", "Store", "WindowRow")

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

Isolation = Literal["read_committed", "read_uncommitted"]
Time = datetime | int
"""A datetime (UTC unless it says otherwise), or epoch milliseconds."""

_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Options(TypedDict, total=False):
    """How a query is to be answered."""

    max_staleness: timedelta
    """A standby may answer that was up to date so long ago."""
    max_lag: int
    """A standby may answer that is so many changelog records behind."""
    position: Mapping[str, int]
    """Wait until the rows have all input below these offsets, by `topic-partition`: the `position` of an earlier
    answer, or a produced record's offset + 1."""
    isolation: Isolation
    """`read_committed` unless given."""
    timeout: timedelta
    """How long to wait for an owner, or for the position; 10 s unless the client says otherwise."""


class KeyOptions(Options, total=False):
    """How a query for a key is to be answered."""

    partition: int
    """Where the key is, if that is not where the producer's murmur2 puts it."""


class RangeOptions(KeyOptions, total=False):
    """How a query for many rows is to be answered."""

    reverse: bool
    """In descending order."""
    limit: int
    """At most so many rows."""


@dataclass(frozen=True)
class Answer(Generic[V]):
    """What was found for a key."""

    found: bool
    value: V | None
    timestamp: int | None
    """Of the record that made the value, epoch ms; None where the store keeps none."""
    partition: int
    position: Mapping[str, int]
    """All input below these offsets is in the value, by `topic-partition`; empty when a copy answered."""
    staleness: timedelta | None
    """How far behind the copy that answered may be; None when the active task did."""
    worker: str
    """Who answered."""


@dataclass(frozen=True, slots=True)
class Row(Generic[K, V]):
    """A row of a key-value store."""

    key: K
    value: V
    timestamp: int | None = None
    """Of the record that made the value, epoch ms; None where the store keeps none."""


@dataclass(frozen=True, slots=True)
class WindowRow(Generic[K, V]):
    """A row of a window store."""

    key: K
    window: Window
    value: V
    timestamp: int | None = None
    """Of the record that made the value, epoch ms; None where the store keeps none."""


class Rows(Generic[R]):
    """Rows as they arrive. Leaving the loop early closes the connection.

    Attributes:
        complete: whether the last row was the last of all; False until then.
        count: how many came so far.
        position: when complete, what input is in the rows for certain, by `topic-partition`.
        staleness: when complete, how far behind the oldest copy that answered may be; None for active tasks only.
        snapshot: when complete, whether the rows of each partition are those of one moment. Long answers, and those
            that went on at another worker, may be of several.
        workers: when complete, who answered.
    """

    def __init__(self, lines: Iterator[bytes], row: Callable[[dict[str, Any]], R]) -> None:
        self.complete = False
        self.count = 0
        self.position: Mapping[str, int] = {}
        self.staleness: timedelta | None = None
        self.snapshot = False
        self.workers: tuple[str, ...] = ()
        self._lines = lines
        self._row = row

    def __iter__(self) -> Iterator[R]:
        """The rows.

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
                FailureReason.NOT_PRESENT, f"the answer was cut off after {self.count} rows: ask again, or for fewer."
            )


@dataclass(frozen=True)
class Store(Generic[K, V]):
    """One store of the application. Options of all queries: `Options`, `KeyOptions`, `RangeOptions`.

    Every query raises `QueryFailed`, whose `reason` a program may act on.
    """

    name: str
    _transport: Transport = field(repr=False)
    _timeout: timedelta
    _key: Serde[K] | None = None
    _value: Serde[V] | None = None

    def get(self, key: K, **options: Unpack[KeyOptions]) -> V | None:
        """The value of a key, None when there is none."""
        return self.lookup(key, **options).value

    def lookup(self, key: K, **options: Unpack[KeyOptions]) -> Answer[V]:
        """The value of a key, with its position and where it is from."""
        return self._one(("keys", self._written(key)), {}, options)

    def range(self, low: K | None = None, high: K | None = None, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """Rows with low <= key <= high in the order of the keys' bytes, over all partitions; None is no bound."""
        return self._rows(("range",), self._bounds(low, high), options)

    def prefix(self, prefix: Any, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """Rows whose serialised key begins with that of `prefix`; bytes are taken as they are."""
        if isinstance(prefix, bytes):
            query = {"prefix": base64.b64encode(prefix).decode("ascii"), "key_format": "base64"}
        else:
            query = {"prefix": self._written(prefix)}
        return self._rows(("prefix",), query, options)

    def all(self, **options: Unpack[RangeOptions]) -> Rows[Row[K, V]]:
        """All rows of a key-value store, in the order of the keys' bytes."""
        return self._rows(("all",), {}, options)

    def fetch(
        self, key: K, start: Time | None = None, end: Time | None = None, **options: Unpack[RangeOptions]
    ) -> Rows[WindowRow[K, V]]:
        """The windows of a key that start between two times (inclusive; None is no bound), by their start."""
        return self._window_rows(("windows", self._written(key)), _between(start, end), options)

    def fetch_one(self, key: K, start: Time, **options: Unpack[KeyOptions]) -> V | None:
        """The value of a key in the window that starts at a time, None when there is none."""
        return self._one(("windows", self._written(key)), {"start": _time(start)}, options).value

    def fetch_range(
        self,
        low: K | None = None,
        high: K | None = None,
        start: Time | None = None,
        end: Time | None = None,
        **options: Unpack[RangeOptions],
    ) -> Rows[WindowRow[K, V]]:
        """Windows of keys in a range, by segment, key and start; all bounds are inclusive, None is no bound."""
        return self._window_rows(("windows",), self._bounds(low, high) | _between(start, end), options)

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

    def _written(self, key: Any) -> str:
        if self._key is not None:
            return base64.b64encode(self._key.serialize(key)).decode("ascii")
        return msgspec.json.encode(key).decode()

    def _decoded(self, serde: Serde[Any] | None, content: Any) -> Any:
        return content if serde is None else serde.deserialize(base64.b64decode(content))

    def _bounds(self, low: K | None, high: K | None) -> dict[str, str]:
        given = {"low": low, "high": high}
        return {name: self._written(key) for name, key in given.items() if key is not None}

    def _parameters(self, query: dict[str, str], options: Mapping[str, Any]) -> tuple[dict[str, str], float]:
        unknown = set(options) - RangeOptions.__annotations__.keys() - KeyOptions.__annotations__.keys()
        unknown -= Options.__annotations__.keys()
        if unknown:
            raise TypeError(f"there is no option '{min(unknown)}'")
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
    """Asks the workers of an application. Safe for several threads; a `Rows` belongs to one."""

    def __init__(
        self,
        *urls: str,
        timeout: timedelta = timedelta(seconds=10),
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        """Args:
        urls: base URLs of one or more workers; any of them answers for all.
        timeout: how long a query waits for an owner, unless it says otherwise.
        token_file: with the token that workers want, as in their `query.token.file`; read again when it changes.
        ca_file: certificates (PEM) that may have signed those of workers; those of the system unless given.

        Raises:
            ConfigError: there is no URL, one is none, or a file cannot be read.
        """
        self._transport = Transport(urls, token_file=token_file, ca_file=ca_file)
        self._timeout = timeout

    @overload
    def store(self, name: str) -> Store[Any, Any]: ...

    @overload
    def store(self, name: str, *, key: Serde[K], value: Serde[V]) -> Store[K, V]: ...

    def store(self, name: str, *, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> Store[Any, Any]:
        """A store by its name; nothing is asked yet.

        Args:
            name: as in the topology.
            key: the store's own serde; None for what JSON makes of keys.
            value: the store's own serde; both or none.
        """
        if (key is None) != (value is None):
            raise TypeError("give the serdes of both key and value, or none")
        return Store(name, self._transport, self._timeout, key, value)

    def stores(self) -> list[dict[str, Any]]:
        """What can be queried: name, kind, partitions, serdes of each store."""
        found: list[dict[str, Any]] = self._transport.one(("stores",), {}, self._timeout.total_seconds())["stores"]
        return found

    def metadata(self, store: str, key: Any) -> dict[str, Any]:
        """Where a key is: partition, task, active worker and standbys (name and address)."""
        path = ("metadata", store, msgspec.json.encode(key).decode())
        found: dict[str, Any] = self._transport.one(path, {"key_format": "json"}, self._timeout.total_seconds())
        return found

    def partitions(self, store: str) -> list[dict[str, Any]]:
        """Where the partitions of a store are; for each what `metadata` gives."""
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
