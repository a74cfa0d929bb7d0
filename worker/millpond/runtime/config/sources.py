"""Settings as they come in, from TOML, the environment, flags or code: checked one by one, later ones winning.

Nothing is taken silently. What cannot be a setting is refused with where it came from and the nearest right one, and
no message ever shows a value that may be a secret.
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

__all__ = ("Collected", "read_toml", "spelled", "variable_for")

_ENVIRONMENT = "MILLPOND_"

_INLINE = "MILLPOND_CONFIG_INLINE"
_OTHER_VARIABLES = frozenset({"MILLPOND_CACHE", "MILLPOND_CONFIG", _INLINE, "MILLPOND_TERMINATION_LOG"})
"""Variables of millpond that are no settings; nor are those of its tests, which begin with MILLPOND_TEST_."""

# Kubernetes puts the addresses of services into the environment of pods; of services named millpond…, these.
_SERVICE_LINK = re.compile(
    r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)

_TAG = "client.tag."

_OLD_NAMES = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
}
"""Kafka Streams' older names for settings that go on under another."""

_NOT_HERE = "is one of Kafka Streams but not of millpond"

_REFUSED = {
    "num.stream.threads": "a worker has one loop; start more workers instead",
    "rocksdb.config.setter": "write 'rocksdb.block.cache.bytes' and 'rocksdb.write.buffer.bytes'",
    "metric.reporters": "metrics are served for Prometheus on 'http.port'",
    "metrics.recording.level": "all metrics are always recorded",
    "ensure.explicit.internal.resource.naming": "compare 'millpond topology' with the one that ran before",
    "upgrade.from": "millpond reads what every Kafka Streams since 3.5 writes",
    "default.dsl.store": "write persistent=False where a store of the topology shall be in memory",
    "dsl.store.suppliers.class": "write persistent=False where a store of the topology shall be in memory",
}
"""Settings of Kafka Streams that mean nothing here, with what to do instead."""


class Collected:
    """The settings given so far, by key.

    Args:
        parsers: millpond's own settings, with what turns a given value into the one to use.
    """

    def __init__(self, parsers: Mapping[str, Parser]) -> None:
        self._parsers = parsers
        self._aliases = _OLD_NAMES | {key.removesuffix(".ms"): key for key in parsers if key.endswith(".ms")}
        self._clients: dict[tuple[str, str], dict[bool, clients.ClientValue]] = {}
        self.own: dict[str, Any] = {}
        self.topic: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.app: dict[str, object] = {}
        self.origins: dict[str, str] = {}

    def add(self, written: str, value: object, origin: str) -> None:
        """Take one setting.

        Args:
            written: the key as it was written.
            value: of any type a source may give.
            origin: where it came from, such as "in file millpond.toml".

        Raises:
            ConfigError: there is no such setting, it cannot be set, or not to this value.
        """
        key = self._aliases.get(written, written)
        try:
            if key != written and key.endswith(".ms") and not _has_unit(value):
                raise _Refusal(f"needs a unit, as in '100ms' or '5s', or is written as '{key}'")
            if not (self._own(key, value) or self._prefixed(key, value) or self._client(key, value)):
                raise _Refusal(f"is unknown{self._suggestion(written)}")
        except _Refusal as refusal:
            sentence = f"setting '{written}' ({origin}) {refusal}"
            raise ConfigError(sentence if sentence.endswith("?") else f"{sentence}.") from refusal.__cause__
        self.origins[key] = origin

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Take what the environment says: first the settings written as JSON in one variable, then all others.

        Raises:
            ConfigError: as `add`, or the JSON is none.
        """
        for key, value in _inline(environ.get(_INLINE, "")):
            self.add(key, value, f"in {_INLINE}")
        for name, text in environ.items():
            self.add_variable(name, text)

    def add_credentials(self, directory: object) -> None:
        """Take the properties of the Kafka clients that lie in a directory, if there is one.

        Raises:
            ConfigError: they cannot be read, or one of them is no such property or has no such value.
        """
        if directory is None:
            return
        for name, text, may_be_material in read_credentials(Path(str(directory))):
            origin = f"in {directory}"
            try:
                if not self._credential(name, text) and not may_be_material:
                    near = nearest(name, PROPERTIES)
                    hint = clients.meant(near) if near else ": other settings belong into the configuration"
                    raise _Refusal(f"is no property of Kafka clients{hint}")
            except _Refusal as refusal:
                sentence = f"setting '{name}' ({origin}) {refusal}"
                raise ConfigError(sentence if sentence.endswith("?") else f"{sentence}.") from None
            self.origins[name] = origin

    def add_variable(self, name: str, text: str) -> None:
        """Take one variable of the environment, unless it is empty or none of millpond's.

        Raises:
            ConfigError: as `add`.
        """
        if (
            not text
            or not name.startswith(_ENVIRONMENT)
            or name in _OTHER_VARIABLES
            or name.startswith(f"{_ENVIRONMENT}TEST_")
        ):
            return
        rest = name.removeprefix(_ENVIRONMENT)
        key = spelled(rest.lower(), self._parsers)
        if key not in self._parsers and _SERVICE_LINK.fullmatch(rest):
            return
        self.add(key, text, f"from {name} in the environment")

    def clients(self) -> dict[str, dict[str, clients.ClientValue]]:
        """Each client's properties; one with the client's prefix wins over one without, whatever their sources."""
        built: dict[str, dict[str, clients.ClientValue]] = {client: {} for client in clients.CLIENTS}
        for (client, name), given in self._clients.items():
            built[client][name] = given[max(given)]
        return built

    def _own(self, key: str, value: object) -> bool:
        parse = self._parsers.get(key)
        if parse is None:
            if reason := _REFUSED.get(key):
                raise _Refusal(f"{_NOT_HERE}: {reason}")
            return False
        try:
            self.own[key] = parse(value)
        except ValueError as error:
            raise _Refusal(f"has the value {_show(key, value)}: {error}") from error
        return True

    def _prefixed(self, key: str, value: object) -> bool:
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
                raise _Refusal(str(error)) from error
            return True
        return False

    def _client(self, key: str, value: object) -> bool:
        try:
            found = clients.route(key)
        except ValueError as error:
            client, name = clients.split_prefix(key)
            own = self._aliases.get(name, name)
            if client is not None and own in self._parsers and str(error).startswith("is unknown"):
                raise _Refusal(f"is no property of the {client} but a setting of the worker; write '{own}'") from error
            raise _Refusal(str(error)) from error
        if found is None:
            return False
        if not found.clients:
            return self._own(found.name, value)
        try:
            checked = clients.value_for(found.name, value)
        except ValueError as error:
            raise _Refusal(f"has the value {_show(key, value)}: {error}") from error
        self._properties(found, checked)
        return True

    def _credential(self, name: str, text: str) -> bool:
        try:
            found = clients.route(name)
        except ValueError as error:
            raise _Refusal(str(error)) from None
        if found is None or not found.clients:
            return False
        try:
            checked = clients.value_for(found.name, text)
        except ValueError as error:
            raise _Refusal(f"has a value that cannot be used: {error}") from None
        self._properties(found, Secret(str(checked)) if not isinstance(checked, Secret) else checked)
        return True

    def _properties(self, found: Route, value: ClientValue) -> None:
        for client in found.clients:
            self._clients.setdefault((client, found.name), {})[found.prefixed] = value

    def _suggestion(self, written: str) -> str:
        if own := nearest(written, [*self._parsers, *self._aliases]):
            return f"; did you mean '{own}'?"
        near = nearest(written, [*PROPERTIES, *_REFUSED])
        if near is None:
            return "; an application's own settings begin with 'app.'"
        if reason := _REFUSED.get(near):
            return f", and '{near}' {_NOT_HERE}: {reason}"
        return clients.meant(near)


class _Refusal(Exception):
    """The rest of a sentence that begins with the setting and its origin."""


def spelled(name: str, parsers: Mapping[str, Parser]) -> str:
    """The key that an attribute or variable stands for, in which every dot is an underscore."""
    client, _, rest = name.partition("_")
    if client in clients.CLIENTS and rest:
        return f"{client}.{_UNDERSCORED.get(rest) or rest.replace('_', '.')}"
    dotted = name.replace("_", ".")
    return dotted if dotted in parsers else _UNDERSCORED.get(name, dotted)


_UNDERSCORED = {name.replace(".", "_"): name for name in PROPERTIES}


def variable_for(key: str) -> str:
    """The environment variable of a setting: ``commit.interval.ms`` is ``MILLPOND_COMMIT_INTERVAL_MS``."""
    return _ENVIRONMENT + key.replace(".", "_").upper()


def read_toml(path: Path) -> Iterator[tuple[str, object]]:
    """The settings of a TOML file; tables and dotted keys are joined by dots.

    Raises:
        ConfigError: the file cannot be read, or is not TOML.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path} cannot be read: it is not UTF-8.") from error
    except tomllib.TOMLDecodeError as error:  # its text names keys and characters, but never a value
        raise ConfigError(
            f"configuration file {path} is not valid TOML: {error}; texts stand in quotes, as in "
            f'application.id = "delays".'
        ) from error
    return _flat(tables)


def _inline(text: str) -> Iterator[tuple[str, object]]:
    """The settings of a JSON object; objects within it and dotted keys are joined by dots.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return iter(())
    try:
        settings = json.loads(text)
    except ValueError as error:  # its text has the place, but nothing of the document
        raise ConfigError(f"{_INLINE} is not valid JSON: {error}.") from None
    if not isinstance(settings, dict):
        raise ConfigError(f'{_INLINE} is no JSON object: write {{"commit.interval": "100ms"}}.')
    return _flat(settings)


def _flat(tables: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tables.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _has_unit(value: object) -> bool:
    return isinstance(value, timedelta) or (isinstance(value, str) and not re.fullmatch(r"\s*[+-]?\d+\s*", value))


def _show(key: str, value: object) -> str:
    if is_secret(key) or isinstance(value, Secret):
        return HIDDEN
    return repr(value) if isinstance(value, str | int | float | timedelta | list | tuple | None) else kind_of(value)
