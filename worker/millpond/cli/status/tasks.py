"""`millpond tasks`: every task of a running application, and what it waits for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click
import msgspec

from millpond.cli.cluster.options import Where, where_options
from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.errors import MillpondError
from millpond.protocol.overview import MoveOverview, TaskOverview

from .sources import cluster_report, connected, name_option, session, streamapp
from .tasks_view import chosen, tasks_table

__all__ = ("command",)


@click.command("tasks", short_help="Show the tasks of a running application.")
@where_options
@name_option
@click.option("--worker", metavar="WORKER", help="Only tasks that this worker runs, owns or has a copy of.")
@click.option("--waiting", is_flag=True, help="Only tasks that do not run, or wait for something.")
@click.option("--json", "as_json", is_flag=True, help="As JSON for programs.")
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    called: Session, name: str | None, where: Where, worker: str | None, *, waiting: bool, as_json: bool
) -> None:
    """Show the tasks of the application NAME: worker, owner, state, lag, standbys, and what each waits for.

    NAME is as for `millpond status`; it may be left out if one session runs on this machine. The lag of a task is in
    records of its inputs, that of a standby in records of its changelogs.

    \b
    millpond tasks
    millpond tasks delays --waiting
    millpond tasks --kubernetes delays -n shop --worker delays-2
    """  # noqa: D301 - click's mark for lines that are not wrapped
    moves: tuple[MoveOverview, ...] = ()
    missing: tuple[str, ...] = ()
    if where.on_cluster:
        name = streamapp(name)
        with connected(where) as (_, applications):
            report = cluster_report(applications, name)()
        tasks, moves, missing = report.overview.tasks, report.overview.moves, report.missing
        workers = [each.worker for each in report.overview.workers]
    else:
        status = session(name).status()
        name = status.application
        tasks, workers = status.details, [each.worker for each in status.workers]
    worker = None if worker is None else _named(worker, name, workers, tasks)
    shown = chosen(tasks, moves, worker, waiting=waiting)
    if as_json:
        click.echo(msgspec.json.encode({"tasks": shown, "missing": missing}))
    else:
        called.out.print(tasks_table(shown, moves, missing, width=called.out.width))


def _named(text: str, app: str, workers: Iterable[str], tasks: Iterable[TaskOverview]) -> str:
    """Return the worker of a name or of the number at the end of it.

    Raises:
        MillpondError: there is none.
    """
    of_tasks = {name for each in tasks for name in (each.worker, each.owner) if name}
    known = [*dict.fromkeys([*workers, *sorted(of_tasks)])]
    for each in known:
        if text in {each, each.rpartition("-")[2]}:
            return each
    near = difflib.get_close_matches(text, known, n=1, cutoff=0.8)
    hint = f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known[:10]) or 'none'}."
    raise MillpondError(f"'{app}' has no worker '{text}': {hint}")
