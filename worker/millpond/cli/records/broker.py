"""The broker that commands about topics use: of an option, of the configuration, or of a session of `millpond dev`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from millpond.cli.application import attribute_name
from millpond.cli.dev.remote import Remote, sessions
from millpond.cli.options import DEFAULT_FILE, key_and_value, load_config
from millpond.cli.session_broker import BROKER as _BROKER
from millpond.cli.session_broker import reject_other_broker, session_option
from millpond.errors import ConfigError
from millpond.runtime.config.model import Config

__all__ = ("Place", "broker_options")


class Place(NamedTuple):
    """The broker of a command, and how it was found."""

    config: Config
    application: str
    """The `application.id` of the session or of the configuration; empty if neither names one."""
    where: str
    """The broker and its origin, for a line on standard error."""


def broker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about the broker to a command, which gets a function that finds it as `find`."""

    @click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Addresses of brokers to connect to first.")
    @session_option
    @click.option("--application-id", metavar="NAME", help="The prefix of the application's internal topics.")
    @click.option(
        "-c", "--config", "file", metavar="FILE", type=click.Path(path_type=Path),
        help=f"Settings in TOML. Default: $MILLPOND_CONFIG, or {DEFAULT_FILE} if it exists.",
    )  # fmt: skip
    @click.option("--set", "more", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
    @functools.wraps(function)
    def with_broker(
        bootstrap_servers: str | None,
        named: str | None,
        application_id: str | None,
        file: Path | None,
        more: tuple[str, ...],
        **arguments: Any,
    ) -> Any:
        flags: dict[str, object] = dict(map(key_and_value, more))
        if bootstrap_servers is not None:
            flags[_BROKER] = bootstrap_servers
        if application_id is not None:
            flags["application.id"] = application_id
        return function(find=functools.partial(_find, named, file, flags), **arguments)

    return with_broker


def _application() -> str:
    """Return the value of `--application`; empty without the option."""
    target = click.get_current_context().params.get("application")
    return target if isinstance(target, str) else ""


def _find(named: str | None, file: Path | None, flags: dict[str, object]) -> Place:
    """Return the broker: that of an option, else of the named session, of the configuration, or of the only session.

    Of several sessions, it is that of the application that the options or the configuration name.

    Raises:
        ConfigError: no broker is known, or the configuration and a running session name different ones.
        NoSession: the named session does not run, or several run and none was named.
    """
    if named is not None and _BROKER in flags:
        raise click.UsageError("--session and --bootstrap-servers exclude each other: leave out one of them.")
    # Only the application's serdes need those of the settings.
    target = _application()
    imports = bool(target)
    config = load_config(file, flags, required=(), beside_session=True, imports=imports)
    if _BROKER in flags:
        return Place(config, config.application_id, config.bootstrap_servers)
    if named is None and config.bootstrap_servers:
        origin = config.origins[_BROKER]
        reject_other_broker(config.bootstrap_servers, origin)
        return Place(config, config.application_id, f"{config.bootstrap_servers} ({origin})")
    if named is None and not sessions():
        raise ConfigError(
            "no broker is known: start `millpond dev` in another terminal, give --bootstrap-servers HOST:PORT, or set "
            f"'{_BROKER}' in {DEFAULT_FILE}."
        )
    status = Remote.find(named, application=config.application_id or attribute_name(target)).status()
    flags = {**flags, _BROKER: status.bootstrap_servers}
    flags.setdefault("application.id", status.application)
    return Place(
        load_config(file, flags, required=(), imports=imports), status.application,
        f"{status.bootstrap_servers} (of the session of {status.application})",
    )  # fmt: skip
