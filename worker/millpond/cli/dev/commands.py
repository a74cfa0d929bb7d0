"""What other terminals can say to a session: `millpond dev scale 5`, `kill w1`, `drain w2` and the like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from millpond.cli.options import verbose_option
from millpond.cli.session import Session

from .remote import RESTART_AFTER_S, Remote
from .view import table

__all__ = ("COMMANDS",)

COMMANDS: dict[str, click.Command] = {}
"""By name."""


def _command(name: str, short_help: str) -> Callable[[Callable[..., None]], click.Command]:
    """A command with the options that all of them have."""

    def make(function: Callable[..., None]) -> click.Command:
        with_app = click.option(
            "--app", metavar="NAME", help="The session's application id or process id, where several run."
        )(function)
        made = click.command(name, short_help=short_help)(verbose_option(click.pass_obj(with_app)))
        COMMANDS[name] = made
        return made

    return make


def _say(app: str | None, do: str, **arguments: Any) -> None:
    click.echo(Remote.find(app).command(do, **arguments))


@_command("scale", "Have so many workers.")
@click.argument("workers", type=click.IntRange(1))
def scale(_session: Session, app: str | None, workers: int) -> None:
    """Have WORKERS workers: missing ones are started; the ones with the highest numbers are drained and stopped."""
    _say(app, "scale", workers=workers)


@_command("kill", "End a worker by SIGKILL; it is started again.")
@click.argument("worker")
@click.option(
    "--restart-after", type=click.FloatRange(0), default=RESTART_AFTER_S, show_default=True, metavar="SECONDS"
)
@click.option("--no-restart", is_flag=True, help="It stays away until `millpond dev scale` wants it back.")
def kill(_session: Session, app: str | None, worker: str, restart_after: float, *, no_restart: bool) -> None:
    """End WORKER by SIGKILL, as a crash would; with `coordinator`, the coordinator."""
    _say(app, "kill", worker=worker, restart_after_s=None if no_restart else restart_after)


@_command("drain", "Move a worker's tasks to others, then stop it.")
@click.argument("worker")
def drain(_session: Session, app: str | None, worker: str) -> None:
    """Move the tasks of WORKER to the others, then stop it; `millpond dev scale` can have it back."""
    _say(app, "drain", worker=worker)


@_command("pause", "Stop a worker by SIGSTOP: it lives, and is silent.")
@click.argument("worker")
def pause(_session: Session, app: str | None, worker: str) -> None:
    """Stop WORKER by SIGSTOP, as a machine that hangs would: after the session timeout it counts as gone."""
    _say(app, "pause", worker=worker)


@_command("resume", "Let a paused worker go on.")
@click.argument("worker")
def resume(_session: Session, app: str | None, worker: str) -> None:
    """Let WORKER go on after `millpond dev pause`; it finds that its tasks are others' now."""
    _say(app, "resume", worker=worker)


@_command("status", "Show the workers once.")
@click.option("--json", "as_json", is_flag=True, help="Everything, for programs.")
def status(session: Session, app: str | None, *, as_json: bool) -> None:
    """Show the workers and what they do, as the session's terminal does."""
    remote = Remote.find(app)
    if as_json:
        click.echo(remote.raw_status())
    else:
        session.out.print(table(remote.status()))
