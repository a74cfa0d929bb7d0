"""The broker of a session of `millpond dev`, for commands that change or read what an application has in Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from millpond.errors import ConfigError
from millpond.runtime.config.model import Config, load_without_imports

from .application import attribute_name
from .dev.remote import Remote, sessions
from .dev.status import SessionStatus
from .options import config_file, load_config

__all__ = ("BROKER", "of_session", "reject_other_broker", "session_here", "session_option")

BROKER = "bootstrap.servers"

session_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--session", "named", metavar="NAME", help="The session of `millpond dev` whose broker to use, if several run."
)


def of_session(
    named: str | None,
    file: Path | None,
    flags: dict[str, object],
    target: str | None = None,
    config: Config | None = None,
) -> tuple[dict[str, object], SessionStatus | None]:
    """Return settings with the broker, the application and the state directory of its session, and its status.

    Without a session, the settings are unchanged, and the status is None: then the broker is that of the options or of
    the configuration, or it is missing.

    Args:
        named: the value of `session_option`.
        file: the configuration file.
        flags: settings of the command line, by key.
        target: the application, as ``MODULE:ATTRIBUTE``, if it is known. Its session is one of the same application.
        config: the configuration of `file` and `flags`, if it is loaded already.

    Raises:
        click.UsageError: options exclude each other.
        ConfigError: the configuration and a running session name different brokers, the named session is one of
            another application, or only sessions of other applications run.
        NoSession: the named session does not run, or several run and none was named.
    """
    if named is not None and BROKER in flags:
        raise click.UsageError("--session and --bootstrap-servers exclude each other: leave out one of them.")
    if config is None:
        config = load_config(file, flags, required=(), beside_session=True, imports=False)
    if named is None and (BROKER in flags or not sessions()):
        return flags, None
    if named is None and config.bootstrap_servers:
        reject_other_broker(config.bootstrap_servers, config.origins[BROKER])
        return flags, None
    wanted = config.application_id or (attribute_name(target) if target is not None else "")  # as `millpond dev` does
    running = sorted({each.application for each in sessions()})
    if named is None and wanted and wanted not in running:
        raise ConfigError(
            f"no broker is known: no session of '{wanted}' runs, only of {', '.join(running)}, and '{BROKER}' is not "
            "set. Start `millpond dev`, correct the application's id, or give --bootstrap-servers HOST:PORT."
        )
    status = Remote.find(named or wanted or None).status()
    if wanted and status.application != wanted:
        raise ConfigError(
            f"the session runs application '{status.application}', but this command is about '{wanted}': name its "
            "session, or give --bootstrap-servers HOST:PORT."
        )
    found: dict[str, object] = {BROKER: status.bootstrap_servers, "application.id": status.application}
    if status.state_dir:
        found["state.dir"] = status.state_dir
    return {**found, **flags}, status


def session_here(name: str | None) -> Remote:
    """Return the named session; without a name that of the `application.id` of this directory, else the only one.

    Raises:
        ConfigError: the configuration cannot be read, so no session is known to be the right one.
        NoSession: no such session runs, or several do.
    """
    if name is not None:
        return Remote.find(name)
    here = load_without_imports(config_file(None), required=())
    return Remote.find(application=here.application_id)


def reject_other_broker(servers: str, origin: str) -> None:
    """Reject a configured broker if sessions run and none of them uses it: both may be meant.

    Raises:
        ConfigError: see above.
    """
    running = [Remote(each).status() for each in sessions()]
    if running and all(each.bootstrap_servers != servers for each in running):
        raise ConfigError(
            f"'{BROKER}' is {servers} ({origin}), but the running session of '{running[0].application}' uses "
            f"{running[0].bootstrap_servers}: choose by --bootstrap-servers or --session."
        )
