"""Reads settings from TOML, the environment, credentials, flags and code, and checks each of them; later ones win.

An unknown setting is rejected with its source and the nearest known name. No message shows a secret.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond.checks import kind_of
from millpond.errors import ConfigError

from . import client_settings as clients
from .client_properties import PROPERTIES
from .client_settings import ClientValue, Route
from .credentials import read_credentials
from .parsers import HIDDEN, Parser, Secret, is_secret, nearest

__all__ = ("OLD_NAMES", "REGISTRY_VARIABLE", "REJECTED", "Collected", "key_of", "read_toml", "variable_for")

_ENVIRONMENT = "MILLPOND_"

#: The variable that other clients of schema registries know, too.
REGISTRY_VARIABLE = "SCHEMA_REGISTRY_URL"
_INLINE = "MILLPOND_CONFIG_INLINE"
_OTHER_VARIABLES = frozenset({"MILLPOND_CACHE", "MILLPOND_CONFIG", _INLINE, "MILLPOND_TERMINATION_LOG"})
"""Variables of millpond that are no settings. Neither are those of its tests, MILLPOND_TEST_…."""

# Kubernetes sets such variables in pods, with the addresses of services. Those of services named millpond… are ignored.
_SERVICE_LINK = re.compile(
    r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

_TAG = "client.tag."

OLD_NAMES = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
}
"""Former names of settings in Kafka Streams, with the current ones."""

_NOT_SUPPORTED = "is a setting of Kafka Streams that millpond does not have"

REJECTED = {
    "num.stream.threads": "a worker has one processing thread; start more workers instead",
    "rocksdb.config.setter": "write 'rocksdb.block.cache.bytes' and 'rocksdb.write.buffer.bytes'",
    "metric.reporters": "metrics are served for Prometheus on 'http.port'",
    "upgrade.from": "millpond reads what Kafka Streams 3.5 and later write",
    "dsl.store.suppliers.class": "write default.dsl.store=in_memory for stores in memory, or persistent=False in the "
    "topology",
    "built.in.metrics.version": "metrics have one version",
    "metrics.num.samples": "Prometheus computes rates from counters",
    "metrics.sample.window.ms": "Prometheus computes rates from counters",
    "default.client.supplier": "clients are librdkafka's; tests use millpond.testing.TopologyTestDriver",
    **dict.fromkeys(
        (
            "default.list.key.serde.inner",
            "default.list.key.serde.type",
            "default.list.value.serde.inner",
            "default.list.value.serde.type",
        ),
        "write mp.ListSerde(inner) in the topology, or the import path of one in 'default.key.serde' or "
        "'default.value.serde'",
    ),
    "probing.rebalance.interval.ms": "a task moves as soon as its copy has caught up",
    "processor.wrapper.class": "write mp.StreamsBuilder(processor_wrapper=…)",
    "task.assignor.class": "the coordinator assigns tasks, by one rule for all applications",
    **dict.fromkeys(
        (
            "rack.aware.assignment.non_overlap_cost",
            "rack.aware.assignment.strategy",
            "rack.aware.assignment.traffic_cost",
        ),
        "the coordinator keeps tasks where they are, and copies apart by 'rack.aware.assignment.tags'",
    ),
    "window.size.ms": "write mp.TimeWindowedSerde(inner, size)",
    "windowed.inner.class.serde": "write mp.TimeWindowedSerde(inner, size) or mp.SessionWindowedSerde(inner)",
}
"""Settings of Kafka Streams without a meaning here, with what to do instead."""


class Collected:
    """The settings collected so far.

    Args:
        parsers: the parsers of the settings, by key.

    Attributes:
        own: values of the settings with fixed keys.
        topic: configuration of internal topics, from the prefix ``topic.``.
        tags: the worker's tags, from the prefix ``client.tag.``.
        app: the application's own settings, from the prefix ``app.``.
        origins: the source of each setting, by key.
    """

    def __init__(self, parsers: Mapping[str, Parser]) -> None:
        self._parsers = parsers
        self._aliases = OLD_NAMES | {key.removesuffix(".ms"): key for key in parsers if key.endswith(".ms")}
        self._clients: dict[tuple[str, str], dict[bool, clients.ClientValue]] = {}
        self.own: dict[str, Any] = {}
        self.topic: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.app: dict[str, object] = {}
        self.origins: dict[str, str] = {}

    def add(self, written: str, value: object, origin: str) -> None:
        """Add one setting.

        Args:
            written: the key in the form of the source.
            value: the value, of any type that a source may give.
            origin: its source, such as "in millpond.toml".

        Raises:
            ConfigError: the setting does not exist, cannot be set, or has an invalid value.
        """
        key = self._aliases.get(written, written)
        try:
            if key != written and key.endswith(".ms") and not _has_unit(value):
                raise _Rejection(f"needs a unit, as in '100ms' or '5s', or is written as '{key}'")
            if not (
                self._add_own(key, value) or self._add_prefixed(key, value) or self._add_client_property(key, value)
            ):
                raise _Rejection(f"is unknown{self._suggestion(written)}")
        except _Rejection as rejection:
            sentence = f"setting '{written}' ({origin}) {rejection}"
            raise ConfigError(sentence if sentence.endswith("?") else f"{sentence}.") from rejection.__cause__
        self.origins[key] = origin

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Add the settings of the environment: first those of MILLPOND_CONFIG_INLINE, then the others.

        Raises:
            ConfigError: see `add`; or MILLPOND_CONFIG_INLINE is not a JSON object.
        """
        if address := environ.get(REGISTRY_VARIABLE):
            self.add("schema.registry.url", address, f"in {REGISTRY_VARIABLE}")
        for key, value in _read_inline(environ.get(_INLINE, "")):
            self.add(key, value, f"in {_INLINE}")
        for name, text in environ.items():
            self.add_variable(name, text)

    def add_credentials(self, directory: object) -> None:
        """Add the properties of Kafka clients from the files of a directory; None adds nothing.

        Raises:
            ConfigError: a file cannot be read, does not have the name of a property, or contains an invalid value.
        """
        if directory is None:
            return
        for name, text, may_be_material in read_credentials(Path(str(directory))):
            origin = f"in {directory}"
            try:
                if not self._add_credential(name, text) and not may_be_material:
                    near = nearest(name, PROPERTIES)
                    hint = clients.suggest(near) if near else ": put other settings into the configuration"
                    raise _Rejection(f"is not a property of Kafka clients{hint}")
            except _Rejection as rejection:
                sentence = f"setting '{name}' ({origin}) {rejection}"
                raise ConfigError(sentence if sentence.endswith("?") else f"{sentence}.") from None
            self.origins[name] = origin

    def add_variable(self, name: str, text: str) -> None:
        """Add one variable of the environment, unless it is empty or not a setting of millpond.

        Raises:
            ConfigError: see `add`.
        """
        if (
            not text
            or not name.startswith(_ENVIRONMENT)
            or name in _OTHER_VARIABLES
            or name.startswith(f"{_ENVIRONMENT}TEST_")
        ):
            return
        rest = name.removeprefix(_ENVIRONMENT)
        key = key_of(rest.lower(), self._parsers)
        if key not in self._parsers and _SERVICE_LINK.fullmatch(rest):
            return
        self.add(key, text, f"from {name} in the environment")

    def clients(self) -> dict[str, dict[str, clients.ClientValue]]:
        """Return the properties of each client. One with the client's prefix wins over one without, from any source."""
        built: dict[str, dict[str, clients.ClientValue]] = {client: {} for client in clients.CLIENTS}
        for (client, name), given in self._clients.items():
            built[client][name] = given[max(given)]
        return built

    def _add_own(self, key: str, value: object) -> bool:
        parse = self._parsers.get(key)
        if parse is None:
            if reason := REJECTED.get(key):
                raise _Rejection(f"{_NOT_SUPPORTED}: {reason}")
            return False
        try:
            self.own[key] = parse(value)
        except ValueError as error:
            raise _Rejection(f"has the value {_shown(key, value)}: {error}") from error
        return True

    def _add_prefixed(self, key: str, value: object) -> bool:
        if key.startswith(_TAG) and key != _TAG:
            self.tags[key.removeprefix(_TAG)] = str(value)
            return True
        prefix, _, name = key.partition(".")
        if prefix == "app" and name:
            self.app[name] = Secret(value) if is_secret(name) and isinstance(value, str) else value
            return True
        if prefix == "topic" and name and key not in PROPERTIES:
            try:
                self.topic[name] = clients.topic_value(name, value)
            except ValueError as error:
                raise _Rejection(str(error)) from error
            return True
        return False

    def _add_client_property(self, key: str, value: object) -> bool:
        try:
            found = clients.route(key)
        except ValueError as error:
            client, name = clients.split_prefix(key)
            own = self._aliases.get(name, name)
            if client is not None and own in self._parsers and str(error).startswith("is unknown"):
                raise _Rejection(f"is a setting of the worker, not of the {client}; write '{own}'") from error
            raise _Rejection(str(error)) from error
        if found is None:
            return False
        if not found.clients:
            return self._add_own(found.name, value)
        try:
            checked = clients.value_for(found.name, value)
        except ValueError as error:
            raise _Rejection(f"has the value {_shown(key, value)}: {error}") from error
        self._store(found, checked)
        return True

    def _add_credential(self, name: str, text: str) -> bool:
        try:
            found = clients.route(name)
        except ValueError as error:
            raise _Rejection(str(error)) from None
        if found is None or not found.clients:
            return False
        try:
            checked = clients.value_for(found.name, text)
        except ValueError as error:
            raise _Rejection(f"has an invalid value: {error}") from None
        self._store(found, Secret(str(checked)) if not isinstance(checked, Secret) else checked)
        return True

    def _store(self, found: Route, value: ClientValue) -> None:
        for client in found.clients:
            self._clients.setdefault((client, found.name), {})[found.prefixed] = value

    def _suggestion(self, written: str) -> str:
        if own := nearest(written.lower(), [*self._parsers, *self._aliases]):
            return f"; did you mean '{own}'?"
        near = nearest(written.lower(), [*PROPERTIES, *REJECTED])
        if near is None:
            return "; an application's own settings begin with 'app.'"
        if reason := REJECTED.get(near):
            return f", and '{near}' {_NOT_SUPPORTED}: {reason}"
        return clients.suggest(near)


class _Rejection(Exception):
    """The reason why a setting is rejected: the end of a sentence that begins with the setting and its source."""


def key_of(name: str, parsers: Mapping[str, Parser]) -> str:
    """Return the key of an attribute or a variable, in which underscores replace the dots."""
    client, _, rest = name.partition("_")
    if client in clients.CLIENTS and rest:
        return f"{client}.{_UNDERSCORED.get(rest) or rest.replace('_', '.')}"
    dotted = name.replace("_", ".")
    return dotted if dotted in parsers else _UNDERSCORED.get(name, dotted)


_UNDERSCORED = {name.replace(".", "_"): name for name in PROPERTIES}


def variable_for(key: str) -> str:
    """Return the environment variable of a setting: ``MILLPOND_COMMIT_INTERVAL_MS`` for ``commit.interval.ms``."""
    return _ENVIRONMENT + key.replace(".", "_").upper()


def read_toml(path: Path) -> Iterator[tuple[str, object]]:
    """Yield the settings of a TOML file; keys of tables are joined by dots.

    Raises:
        ConfigError: the file cannot be read, or is not valid TOML.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # a BOM, as editors of Windows write
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path} cannot be read: it is not UTF-8: convert it.") from error
    except tomllib.TOMLDecodeError as error:  # its text names keys and characters, but never a value
        raise ConfigError(
            f'configuration file {path} is not valid TOML: {error}. Texts need quotes, as in application.id = "delays".'
        ) from error
    return _flatten(tables)


def _read_inline(text: str) -> Iterator[tuple[str, object]]:
    """Yield the settings of a JSON object; keys of nested objects are joined by dots.

    Raises:
        ConfigError: the text is not a JSON object.
    """
    if not text:
        return iter(())
    try:
        settings = json.loads(text)
    except ValueError as error:  # its text has the position, but no part of the document
        raise ConfigError(f"{_INLINE} is not valid JSON: {error}.") from None
    if not isinstance(settings, dict):
        raise ConfigError(f'{_INLINE} is not a JSON object: write {{"commit.interval.ms": "100ms"}}.')
    return _flatten(settings)


def _flatten(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _has_unit(value: object) -> bool:
    return isinstance(value, timedelta) or (isinstance(value, str) and not re.fullmatch(r"\s*[+-]?\d+\s*", value))


def _shown(key: str, value: object) -> str:
    if is_secret(key) or isinstance(value, Secret):
        return HIDDEN
    return repr(value) if isinstance(value, str | int | float | timedelta | list | tuple | None) else kind_of(value)
