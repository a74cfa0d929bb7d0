"""`millpond run`: one worker of an application, in this process."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.errors import ConfigError

from .application import attribute_name, load_topology
from .options import configuration_options, load_config, target_argument, verbose_option
from .session import Session

__all__ = ("command",)


@click.command("run", short_help="Run an application's worker until it is stopped.")
@target_argument
@click.option(
    "--take-over", is_flag=True, help="Take the tasks of other workers of the application, which have to be gone."
)
@configuration_options
@verbose_option
@click.pass_obj
def command(session: Session, target: str, take_over: bool, file: Path | None, flags: dict[str, object]) -> None:
    """Run one worker of the application at MODULE:ATTRIBUTE until it is stopped.

    The attribute is a Topology, a StreamsBuilder, or a function without arguments that returns one. Modules are found
    in the current directory and on Python's path.

    SIGTERM or Ctrl-C: the worker commits what it has processed, and ends. Ctrl-C again ends it at once; nothing that
    was committed is lost, and the next start goes on from there.

    Without a coordinator one worker runs every task, and refuses to start while tasks are another one's. With --take-over
    it becomes their owner, and restores their state from the changelogs. It is for one start, and so no setting.
    """
    from .worker_process import run_worker

    session.log_to_stderr()
    topology = load_topology(target)
    config = load_config(file, flags)
    if take_over and config.coordinator_url is not None:
        raise ConfigError(
            "--take-over and 'coordinator.url' exclude each other: the coordinator decides whose tasks are taken over. "
            "Leave out one of them."
        )
    run_worker(topology, config, session, title=attribute_name(target), take_over=take_over)
