"""The options that several commands share, and the configuration from these options."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from millpond.errors import ConfigError
from millpond.runtime.config.model import Config, load_without_imports
from millpond.runtime.config.settings import IMPORTED
from millpond.runtime.config.sources import REGISTRY_VARIABLE

from .session import Session

__all__ = (
    "DEFAULT_FILE",
    "config_file",
    "configuration_options",
    "key_and_value",
    "load_config",
    "output_options",
    "settings_options",
    "target_argument",
    "verbose_option",
    "with_imports",
)

DEFAULT_FILE = "millpond.toml"
"""The configuration file that is read by default, if it exists."""

_Command = TypeVar("_Command", bound=Callable[..., Any])

target_argument: Callable[[_Command], _Command] = click.argument("target", metavar="MODULE:ATTRIBUTE")

_FLAGS = {
    "application_id": "application.id",
    "bootstrap_servers": "bootstrap.servers",
    "processing_guarantee": "processing.guarantee",
    "worker_id": "worker.id",
    "state_dir": "state.dir",
    "http_port": "http.port",
}


def verbose_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--verbose`` to a command; the value is kept in the session."""

    def keep(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        ctx.ensure_object(Session).verbose |= value

    return click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        callback=keep,
        help="Show debug logs, and tracebacks of errors.",
    )(function)


def configuration_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add options for settings to a command, which gets them as `flags`, a dictionary by key, and as `file`."""

    @click.option("--application-id", metavar="NAME", help="The consumer group and the prefix of internal topics.")
    @click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Addresses of brokers to connect to first.")
    @click.option("--processing-guarantee", metavar="at_least_once|exactly_once", help="Default: at_least_once.")
    @click.option("--worker-id", metavar="NAME", help="The unique name of this worker. Default: w0.")
    @click.option("--state-dir", metavar="DIR", help="The directory of local state.")
    @click.option(
        "--http-port", metavar="PORT", help="The port of queries, /metrics, /healthz and /readyz. Default: a free one."
    )
    @settings_options
    @functools.wraps(function)
    def with_configuration(flags: dict[str, object], **arguments: Any) -> Any:
        given = {key: arguments.pop(name) for name, key in _FLAGS.items()}
        return function(flags=flags | {key: value for key, value in given.items() if value is not None}, **arguments)

    return with_configuration


def settings_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all settings have in common to a command, which gets them as `flags` and as `file`."""

    @click.option(
        "-c", "--config", "file", metavar="FILE", type=click.Path(path_type=Path),
        help=f"Settings in TOML. Default: $MILLPOND_CONFIG, or {DEFAULT_FILE} if it exists.",
    )  # fmt: skip
    @click.option("--set", "more", metavar="KEY=VALUE", multiple=True, help="Any other setting; may be repeated.")
    @functools.wraps(function)
    def with_settings(more: tuple[str, ...], **arguments: Any) -> Any:
        return function(flags=dict(map(key_and_value, more)), **arguments)

    return with_settings


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose between a table and JSON to a command, which gets them as `as_json`."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for programs.")
    @click.option(
        "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="json: the same as --json."
    )
    @functools.wraps(function)
    def with_output(*given: Any, as_json: bool, output: str, **arguments: Any) -> Any:
        return function(*given, as_json=as_json or output == "json", **arguments)

    return with_output


def load_config(
    file: Path | None,
    flags: dict[str, object],
    required: Collection[str] = ("application.id", "bootstrap.servers"),
    *,
    beside_session: bool = False,
    imports: bool = True,
) -> Config:
    """Return the configuration from file, environment and flags, and offer its schema registry to `SchemaRegistry()`.

    Args:
        file: the configuration file; None for the default one, if it exists.
        flags: settings of the command line, by key.
        required: keys of settings that must be given.
        beside_session: whether the command is for the broker of a session of `millpond dev`, unless another one is
            named. Then the session's registry is offered, if the configuration names none.
        imports: whether to import what settings name by an import path; see `load_without_imports`.

    Raises:
        ConfigError: see `Config.load`.
    """
    path = config_file(file)
    config = load_without_imports(path, flags=flags, required=required)
    address = config.schema_registry_url
    if not address and beside_session:
        from .dev.remote import registry_of_session

        address = registry_of_session(config.application_id, config.bootstrap_servers)
    if address:
        # An application makes its SchemaRegistry while it is loaded, and knows no configuration then.
        os.environ[REGISTRY_VARIABLE] = address
    return with_imports(config, path, None, flags, required) if imports else config


def with_imports(
    config: Config,
    file: Path | None,
    environ: Mapping[str, str] | None,
    flags: Mapping[str, object],
    required: Collection[str] = (),
) -> Config:
    """Return a configuration that was loaded without imports with what its import paths name, as of an application.

    Args:
        config: the configuration.
        file: see `Config.load`; so are the other arguments.

    Raises:
        ConfigError: see `Config.load`.
    """
    if IMPORTED.isdisjoint(config.origins):
        return config
    from .application import application_code

    with application_code(config.topology_optimization):
        return Config.load(file, environ, flags, required=required)


def config_file(given: Path | None) -> Path | None:
    """Return the configuration file to read: the given one, that of the environment, or the default, if it exists."""
    if given is not None:
        return given
    named = os.environ.get("MILLPOND_CONFIG")
    return Path(named) if named else Path(DEFAULT_FILE) if Path(DEFAULT_FILE).is_file() else None


def key_and_value(text: str, option: str = "--set", example: str = "commit.interval.ms=100") -> tuple[str, str]:
    """Return the two parts of ``KEY=VALUE``.

    Args:
        text: the argument.
        option: the option that it was given to, for the error.
        example: a right argument, for the error.

    Raises:
        ConfigError: the text has no equals sign, or no key.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        # The message does not repeat the text, which may be a password.
        raise ConfigError(f"{option} needs KEY=VALUE, as in {option} {example}.")
    return key.strip(), value
