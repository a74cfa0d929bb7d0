"""`millpond check`: check an application, its settings and its manifests, before anything runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from millpond.cli.options import settings_options, verbose_option
from millpond.cli.session import Session
from millpond.errors import MillpondError

from .report import Report

__all__ = ("ChecksFailed", "command")

_MANIFEST = "streamapp.yaml"


class ChecksFailed(MillpondError):
    """A check found faults, which were shown."""


@click.command("check", short_help="Check an application, its settings and its manifests, before anything runs.")
@click.argument("things", nargs=-1, metavar="[MODULE:ATTRIBUTE|FILE.yaml]...")
@click.option(
    "--connect",
    is_flag=True,
    help="Ask the brokers of the settings, too: about topics, rights and replicas. Nothing is created or changed.",
)
@click.option("--bootstrap-servers", metavar="HOST:PORT,…", help="Ask these brokers, by --connect.")
@settings_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    things: tuple[str, ...],
    bootstrap_servers: str | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    connect: bool,
) -> None:
    """Check applications and manifests: whether workers could start, and whether a cluster would take the objects.

    An application is built with the settings of `millpond run`, from the same sources. A manifest (.yaml, .yml) is
    checked against the definitions of StreamApp and StateBootstrap, their validation rules included, and by the
    operator's own code; the topology that a StreamApp names is built with the settings that its workers would have, if
    it is here. Without arguments, streamapp.yaml is checked.

    With --connect, the brokers are asked what a worker would ask them when it starts: whether inputs and outputs exist,
    partition counts fit, the user has the rights to them and to the group, and internal topics can be created; and
    which internal topics have one replica, or would get one. The settings need application.id. A StreamApp is checked
    with the brokers that it names, unless --bootstrap-servers names others.

    Nothing else is connected to: whether Secrets and images exist, and which fields must not change, is known to the
    cluster only (`kubectl apply --dry-run=server`).
    """
    if bootstrap_servers is not None:
        if not connect:
            raise click.UsageError("--bootstrap-servers is for --connect: add it, or leave both out.")
        flags["bootstrap.servers"] = bootstrap_servers
    if not things:
        if not Path(_MANIFEST).is_file():
            raise click.UsageError(
                f"there is no {_MANIFEST} here: name what to check, an application as in app:build, or a manifest."
            )
        things = (_MANIFEST,)
    report = Report(file, flags, connect=connect)
    with _client_logs(session):
        for thing in things:
            if Path(thing).suffix in {".yaml", ".yml"}:
                from .manifests import check_file

                check_file(Path(thing), report)
            else:
                report.application(thing)
    for line in report.lines:
        click.echo(line)
    for line in report.faults:
        click.echo(line, err=True)
    if report.faults:
        raise ChecksFailed(f"{len(report.faults)} fault{'s' if len(report.faults) > 1 else ''} found.")


@contextmanager
def _client_logs(session: Session) -> Iterator[None]:
    """Show logs of the Kafka client only if debug logs are wanted: it retries by itself, and failures are faults."""
    if session.verbose:
        session.log_to_stderr()
        yield
        return
    log = logging.getLogger("millpond.runtime.kafka")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)
