"""`millpond run`: run one worker of an application in this process."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.cli.application import attribute_name, load_topology
from millpond.cli.options import configuration_options, load_config, target_argument, verbose_option
from millpond.cli.session import Session
from millpond.errors import ConfigError

__all__ = ("command",)


@click.command("run", short_help="Run a worker of an application until it is stopped.")
@target_argument
@click.option(
    "--take-over",
    is_flag=True,
    help="Take over the tasks of other workers of the application, which must not run any more.",
)
@configuration_options
@verbose_option
@click.pass_obj
def command(session: Session, target: str, file: Path | None, flags: dict[str, object], *, take_over: bool) -> None:
    """Run one worker of the application at MODULE:ATTRIBUTE until it is stopped.

    The attribute is a Topology, a StreamsBuilder, or a function without arguments that returns one. Modules are found
    in the current directory and on Python's path.

    At SIGTERM or Ctrl-C the worker commits the processed records, and ends. A second Ctrl-C ends it at once: the next
    start continues from the last commit.

    Without a coordinator, one worker runs all tasks, and does not start while another worker owns one of them. With
    --take-over it becomes their owner, and restores their state from the changelogs. The option is for a single start.
    """
    from .worker_process import run_worker

    session.log_to_stderr()
    early = load_config(file, flags, required=(), imports=False)
    session.log_as(early.log_format, early.application_id, early.worker_id)
    topology = load_topology(target, early.topology_optimization)
    config = load_config(file, flags)
    if take_over and config.coordinator_url is not None:
        raise ConfigError(
            "--take-over and 'coordinator.url' exclude each other, since the coordinator decides which tasks are taken "
            "over: leave out one of them."
        )
    run_worker(topology, config, session, title=attribute_name(target), take_over=take_over)
