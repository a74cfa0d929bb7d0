"""Decoding of raw rows for people: keys and values as JSON, or as hexadecimal text without serdes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from millpond.errors import BrokerError, MillpondError, StateError
from millpond.runtime.config.model import Config
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.restoring.global_tables import global_layout, reason_not_plain
from millpond.runtime.topics.plan import changelog_topic
from millpond.serdes import Serde, Windowed
from millpond.serdes.fail_fast import failing_fast
from millpond.serdes.plain import plain_json, readable_json
from millpond.snapshots.layouts import StoreKind, StoreLayout, covered, layout_of
from millpond.snapshots.store_columns import split_function
from millpond.state.builders import store_serdes
from millpond.state.unreadable_rows import cure_of
from millpond.times import iso
from millpond.topology import Topology

__all__ = ("LoggedStore", "RowDecoder", "find_store", "stores_of")

_MAX_TEXT = 200
_encode = readable_json(msgspec.json.Encoder(enc_hook=plain_json).encode)


class LoggedStore(NamedTuple):
    """A store of an application that has a changelog. The changelog of a global table is its topic."""

    builder: Any
    """The builder of the store, with the default serdes filled in."""
    topic: str
    """Real name of the changelog; serdes with a schema registry are made for it."""
    layout: StoreLayout
    """The layout of the store's rows."""


def stores_of(topology: Topology, config: Config) -> dict[str, LoggedStore]:
    """Return the stores of an application that a snapshot may contain, by name.

    Raises:
        TopologyError: a store has no serdes, and no default serdes are configured.
    """
    environment = Environment(
        config.application_id,
        Handlers(),
        default_key=config.default_key_serde,
        default_value=config.default_value_serde,
    )
    internal = frozenset(topology.repartition_topics)
    found = {
        each.store.name: LoggedStore(
            environment.complete(each.store),
            each.source.topics[0],
            global_layout(each, config.default_key_serde, config.default_value_serde),
        )
        for each in topology.global_stores
        if reason_not_plain(each, config.default_timestamp_extractor) is None
    }
    for subtopology in topology.subtopologies():
        stores: tuple[Any, ...] = subtopology.stores
        for builder in stores:
            topic = changelog_topic(subtopology, builder.name, internal, config.application_id)
            if topic is not None and covered(builder):
                found[builder.name] = LoggedStore(environment.complete(builder), topic, layout_of(builder))
    return found


def find_store(stores: dict[str, LoggedStore], name: str) -> LoggedStore:
    """Return a store by its name.

    Raises:
        StateError: no store with a changelog has that name.
    """
    if name not in stores:
        known = ", ".join(f"'{each}'" for each in sorted(stores)) or "none"
        raise StateError(f"the application has no store '{name}' with a changelog; it has {known}.")
    return stores[name]


class RowDecoder:
    """The decoder of the rows of one store.

    Attributes:
        no_registry: why a schema registry did not decode a row so far; empty if none has failed.
        undecoded: why the first row was not decoded for another reason; empty if all were.
    """

    def __init__(self, layout: StoreLayout, store: LoggedStore | None = None) -> None:
        """Prepare the serdes.

        Args:
            layout: the layout of the rows.
            store: the store of the application; None to show bytes as hexadecimal text.
        """
        self.no_registry: str = ""
        self.undecoded: str = ""
        self._split = split_function(layout)
        self._windowed = layout.windowed
        self._size: int | None = getattr(None if store is None else store.builder, "window_size_ms", None)
        self._key: Callable[[bytes], Any] = _hex
        self._value: Callable[[bytes], Any] = _hex
        if store is not None:
            key, value = store_serdes(store.builder, store.topic)
            self._key = self._or_hex(key)
            if layout.kind is not StoreKind.OUTER_JOIN:  # a list of values of both sides
                self._value = self._or_hex(value)

    def _or_hex(self, serde: Serde[Any]) -> Callable[[bytes], Any]:
        decode = serde.deserialize

        def decoded(data: bytes) -> Any:
            try:
                found = failing_fast(decode, data)  # else each row would wait for a registry that does not answer
                return found if isinstance(found, Windowed) else _plain(found)
            except BrokerError as error:
                self.no_registry = self.no_registry or str(error)
            except Exception as error:  # noqa: BLE001 - serdes are user code
                if not self.undecoded:
                    failed = error if isinstance(error, MillpondError) else serde.decoding_failed(data, error)
                    cure = cure_of(error)
                    self.undecoded = f"{failed}{f', because it was written as another type: {cure}' if cure else ''}"
            return data.hex()

        return decoded

    def row(self, key: bytes, value: bytes) -> dict[str, Any]:
        """Return a row as plain data: key, value, and if present, window (start and end) and timestamp, in epoch ms.

        Bytes that cannot be decoded are hexadecimal text.
        """
        parts = self._split(key, value)
        row = self._key_and_window(parts.key, parts.window_start, parts.window_end)
        row["value"] = None if parts.value is None else self._value(parts.value)
        if parts.timestamp is not None:
            row["timestamp"] = parts.timestamp
        return row

    def _key_and_window(self, raw: bytes, start: int | None, end: int | None) -> dict[str, Any]:
        key = self._key(raw)
        if isinstance(key, Windowed):
            return {"key": _plain(key.key), "window": {"start": key.start_ms, "end": key.end_ms}}
        found = {"key": key}
        if start is not None:
            if end is None:
                end = start if self._size is None else start + self._size
            found["window"] = {"start": start, "end": end}
        return found

    def difference(self, key: bytes, value: bytes | None) -> tuple[str, str]:
        """Return the key and the value of a row as one line of text each; "" and "-" for a missing row."""
        if value is None:
            return "", "-"
        try:
            row = self.row(key, value)
        except Exception:  # noqa: BLE001 - a damaged row may not even split into its parts
            return key.hex(), _short(value.hex())
        shown = _text(row["key"])
        if "window" in row:
            shown += f" @ {_time(row['window']['start'])}"
        text = _text(row["value"])
        if "timestamp" in row:
            text += f" ({_time(row['timestamp'])})"
        return shown, _short(text)


def _hex(data: bytes) -> str:
    return data.hex()


def _plain(value: Any) -> Any:
    """Return a value as JSON types."""
    return msgspec.json.decode(_encode(value))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def _time(ms: int) -> str:
    return iso(ms, "seconds")
