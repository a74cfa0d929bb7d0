"""`millpond check`: check an application, its settings and its manifests, without a broker and without a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.cli.options import settings_options, verbose_option
from millpond.errors import MillpondError

from .report import Report

__all__ = ("ChecksFailed", "command")

_MANIFEST = "streamapp.yaml"


class ChecksFailed(MillpondError):
    """A check found faults, which were shown."""


@click.command("check", short_help="Check an application, its settings and its manifests, without a cluster.")
@click.argument("things", nargs=-1, metavar="[MODULE:ATTRIBUTE|FILE.yaml]...")
@settings_options
@verbose_option
def command(things: tuple[str, ...], file: Path | None, flags: dict[str, object]) -> None:
    """Check applications and manifests: whether workers could start, and whether a cluster would take the objects.

    An application is built with the settings of `millpond run`, from the same sources. A manifest (.yaml, .yml) is
    checked against the definitions of StreamApp and StateBootstrap, their validation rules included, and by the
    operator's own code; the topology that a StreamApp names is built with the settings that its workers would have, if
    it is here. Without arguments, streamapp.yaml is checked.

    Nothing is connected to: whether topics, Secrets and images exist, and which fields must not change, is known to the
    broker and the cluster only (`kubectl apply --dry-run=server`).
    """
    if not things:
        if not Path(_MANIFEST).is_file():
            raise click.UsageError(
                f"there is no {_MANIFEST} here: name what to check, an application as in app:build, or a manifest."
            )
        things = (_MANIFEST,)
    report = Report(file, flags)
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
