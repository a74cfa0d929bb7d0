"""Raw rows for people: keys and values as JSON has them, or in hexadecimal where nobody knows the serdes. Pure."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from millpond.errors import StateError
from millpond.runtime.config.model import Config
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.restoring.global_tables import global_layout, reason_not_plain
from millpond.runtime.topics.plan import changelog_topic
from millpond.serdes import Serde, Windowed
from millpond.serdes.plain import plain_json
from millpond.snapshots.columns import split_function
from millpond.snapshots.rows import StoreLayout, layout_of
from millpond.topology import Topology

__all__ = ("LoggedStore", "RowDecoder", "find_store", "stores_of")

_LONGEST = 200


class LoggedStore(NamedTuple):
    """A store of an application that has a changelog, its topic where it is a global table."""

    builder: Any
    """Its builder, with the default serdes put in."""
    topic: str
    """Real name of the changelog, for which serdes with a registry are made."""
    layout: StoreLayout
    """Of its rows."""


def stores_of(topology: Topology, config: Config) -> dict[str, LoggedStore]:
    """Return the stores of an application that a snapshot may have, by name.

    Raises:
        TopologyError: a store has no serdes, and there are no default ones.
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
            if topic is not None:
                found[builder.name] = LoggedStore(environment.complete(builder), topic, layout_of(builder))
    return found


def find_store(stores: dict[str, LoggedStore], name: str) -> LoggedStore:
    """Return a store by its name.

    Raises:
        StateError: there is none.
    """
    if name not in stores:
        known = ", ".join(f"'{each}'" for each in sorted(stores)) or "none"
        raise StateError(f"the application has no store '{name}' with a changelog; it has {known}.")
    return stores[name]


class RowDecoder:
    """Shows the rows of one store."""

    def __init__(self, layout: StoreLayout, store: LoggedStore | None = None) -> None:
        """Take the serdes.

        Args:
            layout: of the rows.
            store: of the application; None shows bytes in hexadecimal.
        """
        self._split = split_function(layout)
        self._windowed = layout.windowed
        self._size: int | None = getattr(None if store is None else store.builder, "window_size_ms", None)
        self._key: Callable[[bytes], Any] = _hex
        self._value: Callable[[bytes], Any] = _hex
        if store is not None:
            key, value = store.builder._serdes(store.topic)
            self._key, self._value = _careful(key), _careful(value)

    def row(self, key: bytes, value: bytes) -> dict[str, Any]:
        """Return a row as plain data: key, value, and where it has them window (start and end) and timestamp, in epoch ms.

        What cannot be decoded is hexadecimal text.
        """
        parts = self._split(key, value)
        found = self._keyed(parts.key, parts.window_start)
        found["value"] = None if parts.value is None else self._value(parts.value)
        if parts.timestamp is not None:
            found["timestamp"] = parts.timestamp
        return found

    def _keyed(self, raw: bytes, start: int | None) -> dict[str, Any]:
        key = self._key(raw)
        if isinstance(key, Windowed):
            return {"key": _plain(key.key), "window": {"start": key.start_ms, "end": key.end_ms}}
        found = {"key": key}
        if start is not None:
            found["window"] = {"start": start, "end": start if self._size is None else start + self._size}
        return found

    def difference(self, key: bytes, value: bytes | None) -> tuple[str, str]:
        """Return one line each for the key and the value of a row; of a row that is not there "-"."""
        if value is None:
            return "", "-"
        try:
            row = self.row(key, value)
        except Exception:  # a damaged row may be none at all
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


def _careful(serde: Serde[Any]) -> Callable[[bytes], Any]:
    decode = serde.deserialize

    def decoded(data: bytes) -> Any:
        try:
            found = decode(data)
            return found if isinstance(found, Windowed) else _plain(found)
        except Exception:
            return data.hex()

    return decoded


def _plain(value: Any) -> Any:
    """What JSON can say of a value."""
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=plain_json))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(ms)
