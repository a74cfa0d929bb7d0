"""`millpond dev VERB` in another terminal: each action on a session as a command, and `status`."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

import click

from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.cli.session_broker import session_here

from .actions import ACTIONS, Action
from .remote import CommandFailed, NoSession, Remote
from .view import table

__all__ = ("VERBS",)

_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1

_app_option = click.option(
    "--session",
    "--app",
    "app",
    metavar="NAME",
    help="The application id or process id of the session, if several run.",
)


@click.command("status", short_help="Show the workers once.")
@click.option("--json", "as_json", is_flag=True, help="Show everything, as JSON for programs.")
@_app_option
@verbose_option
@click.pass_obj
def status(session: Session, app: str | None, *, as_json: bool) -> None:
    """Show the workers with their tasks and progress, like the session's own terminal."""
    remote = session_here(app)
    if as_json:
        click.echo(remote.raw_status())
    else:
        session.out.print(table(remote.status()))


def _verb(action: Action) -> click.Command:
    def send(app: str | None, **arguments: Any) -> None:
        remote, command = session_here(app), action.command(**arguments)
        click.echo(f"{remote.application}: {remote.send(command)}")
        if command.do == "scale" and not command.workers:
            _await_stopped(remote)

    decorators: tuple[Callable[[Any], Any], ...] = (verbose_option, *action.parameters, _app_option)
    function = functools.reduce(lambda made, decorate: decorate(made), reversed(decorators), send)
    return click.command(action.name, short_help=action.summary, help=action.help)(function)


def _await_stopped(remote: Remote) -> None:
    """Wait until no worker runs, so that the next command, usually `millpond reset`, finds none.

    Raises:
        CommandFailed: a worker still runs after a minute.
    """
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    with contextlib.suppress(NoSession):  # the session has ended, and with it its workers
        while running := [each.worker for each in remote.status().workers if each.pid]:
            if time.monotonic() >= deadline:
                raise CommandFailed(
                    f"{', '.join(running)} did not stop within {_STOP_TIMEOUT_S:.0f} s: see `millpond dev status`."
                )
            time.sleep(_POLL_S)


VERBS: dict[str, click.Command] = {"status": status, **{name: _verb(action) for name, action in ACTIONS.items()}}
"""All verbs by name."""
