"""The configuration of a worker: Kafka Streams' settings, typed, from file, environment, flags or code.

Later sources win: defaults, the file (TOML), the environment (``MILLPOND_…``), a directory of credentials, flags or
arguments. An unknown setting or an invalid value raises a `ConfigError` with the setting, its source and the nearest
known name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from millpond.checks import kind_of
from millpond.errors import ConfigError

from . import client_settings as clients
from .client_properties import ALIASES
from .parsers import Parser, Secret, is_import_path, protocols_of, unless_import_path
from .settings import IMPORTED, PARSERS, REQUIRED, WorkerSettings, settings
from .sources import Collected, key_of, read_toml, variable_for

__all__ = ("Config", "Secret", "check_config", "load_without_imports")

_Properties = Mapping[str, clients.ClientValue]
_NONE: _Properties = MappingProxyType({})
_WITHOUT_IMPORTS = PARSERS | {key: unless_import_path(PARSERS[key]) for key in IMPORTED}


def _state_home() -> Path:
    """Return the default of `state.dir`. Unlike a temporary directory it survives a restart of the machine."""
    if home := os.environ.get("XDG_STATE_HOME"):
        return Path(home) / "millpond"
    try:
        return Path.home() / ".local" / "state" / "millpond"
    except RuntimeError:  # no home directory, as in some containers
        return Path(tempfile.gettempdir()) / "millpond"


@dataclass(frozen=True, kw_only=True, repr=False)
class Config(WorkerSettings):
    """The configuration of one worker. `Config.of` makes it in code, `Config.load` from file, environment and flags.

    An attribute is the key with underscores: ``commit.interval.ms`` is `commit_interval_ms`. Durations are integer
    milliseconds, sizes are bytes.
    """

    consumer: _Properties = field(default_factory=dict)
    """Properties of the consumer, by librdkafka's names; see `consumer_settings`."""
    producer: _Properties = field(default_factory=dict)
    """Properties of the producer."""
    admin: _Properties = field(default_factory=dict)
    """Properties of the admin client."""
    topic: Mapping[str, str] = field(default_factory=dict)
    """Topic configuration of all internal topics, from the prefix ``topic.``."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of this worker by key, such as its zone, from the prefix ``client.tag.`` (KIP-708)."""
    app: Mapping[str, object] = field(default_factory=dict)
    """The application's own settings, from the prefix ``app.``; millpond does not read them."""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The source of each setting that was given, by key."""

    def __post_init__(self) -> None:
        for one in fields(self):
            given = getattr(self, one.name)
            if "key" in one.metadata and isinstance(one.default, int) and not isinstance(given, int):
                raise ConfigError(
                    f"setting '{one.metadata['key']}' was given to Config() as {kind_of(given)}, and Config() does not "
                    "convert values: write Config.of(…) instead."
                )

    @classmethod
    def of(
        cls, given: Mapping[str, object] | None = None, /, *, required: Collection[str] = REQUIRED, **keywords: object
    ) -> Self:
        """Make a configuration from code alone: no file and no environment.

        Args:
            given: settings by key, such as ``{"consumer.fetch.min.bytes": 1}``.
            required: keys that must be given; pass ``()`` where no broker is used.
            keywords: settings by attribute, such as ``commit_interval_ms=100`` or
                ``commit_interval=timedelta(milliseconds=100)``.

        Raises:
            ConfigError: a setting is unknown, missing or invalid.
        """
        if not isinstance(given, Mapping | None):
            raise ConfigError(f"Config.of() takes settings by key in a dictionary, or by name, not {kind_of(given)}.")
        collected = Collected(PARSERS)
        collected.add_credentials(keywords.get("credentials_dir", (given or {}).get("credentials.dir")))
        for key, value in (given or {}).items():
            collected.add(key, value, "given in code")
        for name, value in keywords.items():
            collected.add(key_of(name, PARSERS), value, f"given as {name}")
        return cls._from(collected, required)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
        *,
        required: Collection[str] = REQUIRED,
    ) -> Self:
        """Make a configuration from a file, the environment, credentials and flags; later sources win.

        Args:
            file: a TOML file; dotted keys and tables mean the same. None reads no file.
            environ: the environment, `os.environ` by default. Variables ``MILLPOND_…`` are read; an empty one counts as
                not set. ``MILLPOND_CONFIG_INLINE``, a JSON object of settings, comes before the others.
            flags: settings by key from the command line.
            required: keys that must be given.

        Raises:
            ConfigError: the file cannot be read, or a setting is unknown, missing or invalid.
        """
        return cls._load(PARSERS, file, environ, flags, required)

    @classmethod
    def _load(
        cls,
        parsers: Mapping[str, Parser],
        file: str | os.PathLike[str] | None,
        environ: Mapping[str, str] | None,
        flags: Mapping[str, object] | None,
        required: Collection[str],
    ) -> Self:
        collected = Collected(parsers)
        if file is not None:
            for key, value in read_toml(Path(file)):
                collected.add(key, value, f"in {os.fspath(file)}")
        collected.add_environment(os.environ if environ is None else environ)
        collected.add_credentials((flags or {}).get("credentials.dir", collected.own.get("credentials.dir")))
        for key, value in (flags or {}).items():
            collected.add(key, value, "given on the command line")
        if parsers is _WITHOUT_IMPORTS:
            for key in IMPORTED:
                if is_import_path(collected.own.get(key)):
                    del collected.own[key]
        return cls._from(collected, required)

    @classmethod
    def _from(cls, collected: Collected, required: Collection[str]) -> Self:
        for key in required:
            if key not in collected.own:
                raise ConfigError(
                    f"setting '{key}' is missing: give it in the configuration file, as {variable_for(key)} in the "
                    f"environment, or on the command line as --{key.replace('.', '-')}."
                )
        values: dict[str, Any] = {_attribute(key): value for key, value in collected.own.items()}
        values.setdefault("state_dir", _state_home())
        if values.get("processing_guarantee") == "exactly_once":
            values.setdefault("commit_interval_ms", 100)
        for client, properties in collected.clients().items():
            values[client] = MappingProxyType(properties)
        values["topic"] = MappingProxyType(collected.topic)
        values["tags"] = MappingProxyType(collected.tags)
        values["app"] = MappingProxyType(collected.app)
        values["origins"] = MappingProxyType(collected.origins)
        config = cls(**values)
        if config.exactly_once and config.transaction_timeout_ms < config.commit_interval_ms:
            raise ConfigError(
                f"'transaction.timeout.ms' ({config.transaction_timeout_ms}) is shorter than 'commit.interval.ms' "
                f"({config.commit_interval_ms}), so the broker would abort every transaction before its commit: raise "
                "the former, or lower the latter."
            )
        # Where no broker is needed, as by `millpond check`, the credentials may be elsewhere, and this setting in them.
        for protocol in protocols_of(config.bootstrap_servers) if required else ():
            for client in clients.CLIENTS:
                chosen = str(getattr(config, client).get("security.protocol", "plaintext")).upper()
                if protocol != chosen:
                    raise ConfigError(
                        f"'bootstrap.servers' has {protocol}://, but 'security.protocol' of the {client} is {chosen}, "
                        f"so no client would connect: set 'security.protocol' to {protocol}, or remove {protocol}://."
                    )
        return config

    @property
    def exactly_once(self) -> bool:
        """Whether `processing_guarantee` is ``exactly_once``."""
        return self.processing_guarantee == "exactly_once"

    @property
    def directory(self) -> Path:
        """The directory of this worker's state, below `state_dir`."""
        return self.state_dir / self.application_id / self.worker_id

    def consumer_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """Return the consumer's properties, with secrets in clear: pass them to the client and to nothing else.

        Args:
            defaults: properties, by any of librdkafka's names, that the configuration may override.
            fixed: properties that override the configuration.
        """
        return self._client(defaults, self.consumer, fixed)

    def producer_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """Return the producer's properties; see `consumer_settings`."""
        return self._client(defaults, self.producer, fixed)

    def admin_settings(self, defaults: _Properties = _NONE, fixed: _Properties = _NONE) -> clients.ClientSettings:
        """Return the admin client's properties; see `consumer_settings`."""
        return self._client(defaults, self.admin, fixed)

    def _client(self, *layers: _Properties) -> clients.ClientSettings:
        # A topic that is created by a question about it has one partition and the defaults of the brokers.
        built = clients.ClientSettings({"bootstrap.servers": self.bootstrap_servers, "allow.auto.create.topics": False})
        for layer in layers:
            for name, value in layer.items():
                # One name per property: of two synonyms librdkafka would take the last one.
                built[ALIASES.get(name, name)] = value.reveal() if isinstance(value, Secret) else value
        return built

    def as_mapping(self) -> Mapping[str, object]:
        """Return all settings by key, for processors; secrets stay hidden."""
        flat: dict[str, object] = {one.key: getattr(self, one.attribute) for one in settings()}
        for prefix in (*clients.CLIENTS, "topic", "app"):
            flat.update({f"{prefix}.{name}": value for name, value in getattr(self, prefix).items()})
        flat.update({f"client.tag.{key}": value for key, value in self.tags.items()})
        return MappingProxyType(flat)

    def __repr__(self) -> str:
        flat = self.as_mapping()
        return f"Config({', '.join(f'{key}={flat[key]!r}' for key in self.origins if key in flat)})"


def check_config(given: object) -> None:
    """Check that `given` is a `Config`.

    Raises:
        ConfigError: `given` is something else, such as a dictionary of settings.
    """
    if not isinstance(given, Config):
        hint = "; mp.Config.of(settings) makes one of it" if isinstance(given, Mapping) else ""
        raise ConfigError(f"a worker needs a Config, not {kind_of(given)}{hint}.")


def _attribute(key: str) -> str:
    return key.replace(".", "_")


def load_without_imports(
    file: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    *,
    required: Collection[str] = REQUIRED,
) -> Config:
    """Make a configuration as `Config.load` does, but import nothing that settings name by an import path.

    These have their defaults. It is for a command that needs none of them, or that loads the application first.

    Raises:
        ConfigError: see `Config.load`.
    """
    return Config._load(_WITHOUT_IMPORTS, file, environ, flags, required)  # noqa: SLF001 - a method would be public
