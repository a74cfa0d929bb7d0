"""The processors of a case, by name: the same as in java/Processors.java."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import millpond as mp
from millpond.state import (
    KeyValueStore,
    SessionStore,
    TimestampedKeyValueStore,
    VersionedKeyValueStore,
    WindowStore,
)
from tests.differential.ours.functions import cap, text


def _value(value: Any) -> str | None:
    return None if value is None else text(value)


def use(store: Any, key: Any, value: Any, time: int) -> str:
    """Put a value into a store, and return what the store had or has for the key."""
    k = text(key)
    if isinstance(store, TimestampedKeyValueStore):
        held = store.get(k)
        store.put(k, None if value is None else mp.ValueAndTimestamp(text(value), time))
        return "-" if held is None else f"{text(held.value)}@{held.timestamp}"
    if isinstance(store, VersionedKeyValueStore):
        until = store.put(k, _value(value), time)
        version = store.get(k, max(0, time - 20))
        return str(until) + ("-" if version is None else f"{text(version.value)}@{version.timestamp}")
    if isinstance(store, KeyValueStore):
        plain = store.get(k)
        store.put(k, _value(value))
        return "-" if plain is None else text(plain)
    if isinstance(store, WindowStore):
        store.put(k, _value(value), time)
        return "".join(f"{start}:{text(v)} " for start, v in store.fetch(k, max(0, time - 50), time + 20))
    assert isinstance(store, SessionStore)
    store.put(mp.Windowed(k, time, time + 5), _value(value))
    return "".join(f"{text(at)}:{text(v)} " for at, v in store.find_sessions(k, max(0, time - 40), time + 10))


def read(name: str, store: Any, key: Any, time: int) -> str:
    """Return what ranges of a store hold. Stores with a cache are only used, since it has an order of its own."""
    k = text(key)
    if name.endswith("-cached") or isinstance(store, VersionedKeyValueStore):
        return ""
    if isinstance(store, KeyValueStore | TimestampedKeyValueStore):
        found = [store.range(None, k), store.reverse_range(k, None), store.prefix_scan("k"), store.reverse_all()]
        return "".join(map(_rows, found))
    first = max(0, time - 80)
    if isinstance(store, WindowStore):
        windows = [
            store.fetch_range(None, k, first, time + 40),
            store.backward_fetch_range(k, None, first, time + 40),
            store.backward_fetch_all(max(0, time - 30), time),
            store.all(),
        ]
        return "".join(map(_rows, windows)) + text(store.fetch(k, time))
    assert isinstance(store, SessionStore)
    sessions = [store.fetch(k), store.find_sessions_range(None, k, max(0, time - 60), time + 30)]
    return "".join(map(_rows, sessions)) + text(store.fetch_session(k, time, time + 5))


def _rows(found: Iterable[tuple[Any, Any]]) -> str:
    values = ((key, value.value if isinstance(value, mp.ValueAndTimestamp) else value) for key, value in found)
    return "".join(f"{text(key)}:{text(value)} " for key, value in values) + "|"


def _java_hash(shown: str) -> int:
    """Return the hash code of a text of ASCII characters in Java."""
    found = 0
    for each in shown:
        found = found * 31 + ord(each) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def _origin(context: Any) -> str:
    at = context.record_metadata()
    return "nowhere" if at is None else f"{at.topic}-{at.partition}/{at.offset}"


def _times(context: Any) -> str:
    return f"{context.current_stream_time_ms()},{context.current_system_time_ms()}"


class _AnyKey(mp.Processor[Any, Any, Any, Any]):
    """A processor that may change keys."""

    def __init__(self, name: str, stores: list[str]) -> None:
        self._name = name.partition(":")[0]
        self._stores = stores
        self._seen = 0

    def init(self, context: mp.ProcessorContext[Any, Any]) -> None:
        kinds = {"stream-clock": mp.PunctuationType.STREAM_TIME, "wall-clock": mp.PunctuationType.WALL_CLOCK_TIME}
        if self._name in kinds:
            context.schedule(timedelta(milliseconds=50), kinds[self._name], self._tick)

    def _tick(self, now: int) -> None:
        self.context.forward(mp.Record("tick", f"t{self._seen}", now))
        if self._stores:
            use(self.context.get_state_store(self._stores[0]), "tick", f"t{self._seen}", now)
        self._seen = 0

    def process(self, record: mp.Record[Any, Any]) -> None:
        self._seen += 1
        context = self.context
        v = _value(record.value)
        plain = record.with_key(_value(record.key)).with_value(v)
        match self._name:
            case "forward" | "stream-clock" | "wall-clock":
                context.forward(plain)
            case "rekey":
                context.forward(plain.with_key(f"p{text(record.key)}").with_timestamp(record.timestamp // 2))
            case "thrice":
                context.forward(plain)
                context.forward(plain.with_timestamp(max(0, record.timestamp - 60)))
                context.forward(plain)
            case "origin":
                context.forward(plain.with_value(cap(f"{text(v)} {_origin(context)}")))
            case "times":
                context.forward(plain.with_value(cap(f"{text(v)} {_times(context)}")))
            case "use":
                held = (use(context.get_state_store(each), record.key, v, record.timestamp) for each in self._stores)
                context.forward(plain.with_value(cap("".join(held))))
            case "read":
                shown = ""
                for each in self._stores:
                    store = context.get_state_store(each)
                    use(store, record.key, v, record.timestamp)
                    shown += read(each, store, record.key, record.timestamp)
                context.forward(plain.with_value(f"{_java_hash(shown)} {cap(shown)}"))
            case other:
                raise ValueError(f"there is no processor called {other}")


class _Fill(mp.Processor[Any, Any, None, None]):
    """A processor that puts each record into a store as it is."""

    def __init__(self, store: str) -> None:
        self._store = store

    def process(self, record: mp.Record[Any, Any]) -> None:
        if record.key is None:
            return
        store, value = self.context.get_state_store(self._store), record.value
        if isinstance(store, TimestampedKeyValueStore):
            store.put(record.key, None if value is None else mp.ValueAndTimestamp(value, record.timestamp))
        else:
            store.put(record.key, value)


class _Look(mp.Processor[Any, Any, Any, Any]):
    """A processor that looks up the key of each record in a store that another processor fills."""

    def __init__(self, store: str) -> None:
        self._store = store

    def process(self, record: mp.Record[Any, Any]) -> None:
        held = self.context.get_state_store(self._store).get(text(record.key))
        shown = f"{text(held.value)}@{held.timestamp}" if isinstance(held, mp.ValueAndTimestamp) else text(held)
        self.context.forward(record.with_key(text(record.key)).with_value(cap(f"{text(record.value)}?{shown}")))


class _FixedKey(mp.FixedKeyProcessor[Any, Any, Any]):
    """A processor that keeps keys."""

    def __init__(self, name: str, stores: list[str]) -> None:
        self._name, _, self._argument = name.partition(":")
        self._stores = stores

    def process(self, record: mp.FixedKeyRecord[Any, Any]) -> None:
        context = self.context
        v = _value(record.value)
        plain = record.with_value(v)
        match self._name:
            case "forward":
                context.forward(plain)
            case "header":
                context.forward(plain.with_headers([*record.headers, (self._argument, text(v).encode())]))
            case "coarse":
                context.forward(plain.with_timestamp(record.timestamp // 50 * 50))
            case "thrice":
                context.forward(plain)
                context.forward(plain.with_timestamp(max(0, record.timestamp - 60)))
                context.forward(plain)
            case "origin":
                context.forward(plain.with_value(cap(f"{text(v)} {_origin(context)}")))
            case "use":
                held = (use(context.get_state_store(each), record.key, v, record.timestamp) for each in self._stores)
                context.forward(plain.with_value(cap("".join(held))))
            case other:
                raise ValueError(f"there is no processor called {other}")


class _Transformer(mp.ValueTransformerWithKey[Any, Any, Any]):
    """A transformer of a table's values."""

    def __init__(self, name: str, stores: list[str]) -> None:
        self._name, _, self._argument = name.partition(":")
        self._stores = stores

    def transform(self, key: Any, value: Any) -> Any:
        match self._name:
            case "glue":
                return cap(f"{text(key)}~{text(value)}")
            case "null-if":
                return None if text(value).startswith(self._argument) else text(value)
            case "use":
                at = self.context.record_metadata()
                time = -1 if at is None else at.timestamp
                return cap("".join(use(self.context.get_state_store(each), key, value, time) for each in self._stores))
            case other:
                raise ValueError(f"there is no transformer called {other}")


def any_key(name: str, stores: list[str]) -> Callable[[], mp.Processor[Any, Any, Any, Any]]:
    """Return the supplier of a processor that may change keys."""
    return lambda: _AnyKey(name, stores)


def filler(store: str) -> Callable[[], mp.Processor[Any, Any, None, None]]:
    """Return the supplier of a processor that fills a store from a topic."""
    return lambda: _Fill(store)


def looker(store: str) -> Callable[[], mp.Processor[Any, Any, Any, Any]]:
    """Return the supplier of a processor that reads a store which another one fills."""
    return lambda: _Look(store)


def fixed_key(name: str, stores: list[str]) -> Callable[[], mp.FixedKeyProcessor[Any, Any, Any]]:
    """Return the supplier of a processor that keeps keys."""
    return lambda: _FixedKey(name, stores)


def transformer(name: str, stores: list[str]) -> Callable[[], mp.ValueTransformerWithKey[Any, Any, Any]]:
    """Return the supplier of a transformer of a table's values."""
    return lambda: _Transformer(name, stores)
