"""`millpond status`: a running application on one screen, or the list of them."""

from __future__ import annotations

import time
from collections.abc import Callable

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from millpond.cli.cluster.applications import Report, Summaries
from millpond.cli.cluster.failures import ClusterError
from millpond.cli.cluster.options import Where, where_options
from millpond.cli.dev.remote import Remote, sessions
from millpond.cli.dev.view import table as session_table
from millpond.cli.options import verbose_option
from millpond.cli.session import Session

from .progress import progress_of
from .sources import cluster_report, connected, name_option, now_ms, session
from .view import applications_table, grid, screen

__all__ = ("command",)

_INTERVAL_S = 2.0


@click.command("status", short_help="Show running applications.")
@where_options
@name_option
@click.option("-A", "--all-namespaces", is_flag=True, help="Without NAME: list the StreamApps of all namespaces.")
@click.option("--watch/--once", default=None, help="Redraw until Ctrl-C, or show once. Default: redraw on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Show everything once, as JSON for programs.")
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    called: Session, name: str | None, where: Where, *, all_namespaces: bool, watch: bool | None, as_json: bool
) -> None:
    """Show the application NAME: workers, moves, changes in progress, conditions, events. Without NAME, list all.

    NAME is a session of `millpond dev` on this machine. With --kubernetes, or another option about a
    cluster, it is a StreamApp, also as NAMESPACE/NAME.

    \b
    millpond status
    millpond status delays
    millpond status --kubernetes
    millpond status --kubernetes delays -n shop
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if not (where.on_cluster or all_namespaces):
        _session_status(called, name, watch=_watches(called, watch=watch, as_json=as_json), as_json=as_json)
        return
    with connected(where) as (cluster, applications):
        if name is None:
            namespace = None if all_namespaces else cluster.namespace
            _list(called, applications.summaries(namespace), namespace, as_json=as_json)
            return
        read = cluster_report(applications, name)
        if as_json:
            click.echo(_json(read()))
        elif _watches(called, watch=watch, as_json=as_json):
            _redraw(called.out, lambda console: _screen(read(), console, fit=True))
        else:
            called.out.print(_screen(read(), called.out, fit=False))


def _watches(called: Session, *, watch: bool | None, as_json: bool) -> bool:
    """Return whether to redraw the screen until Ctrl-C."""
    if as_json:
        return False
    return called.out.is_terminal and not called.out.is_dumb_terminal if watch is None else watch


def _list(called: Session, found: Summaries, namespace: str | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode({"applications": found.applications, "missing": found.missing}))
    elif not found.applications:
        place = "the cluster" if namespace is None else f"namespace '{namespace}'"
        called.out.print(f"There is no StreamApp in {place}.")
    else:
        called.out.print(applications_table(found.applications, found.missing, namespaces=namespace is None))


def _screen(report: Report, console: Console, *, fit: bool) -> RenderableType:
    width, height = console.size
    progress = progress_of(report.app, now_ms())
    return screen(report.overview, progress, report.missing, width=width, height=height if fit else None)


def _json(report: Report) -> bytes:
    content = msgspec.to_builtins(report.overview)
    return msgspec.json.encode(content | {"inProgress": progress_of(report.app, now_ms()), "missing": report.missing})


def _redraw(console: Console, draw: Callable[[Console], RenderableType]) -> None:
    """Redraw until Ctrl-C. A cluster that does not answer for a while is shown above the last screen."""
    last: RenderableType = Text()
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        try:
            while True:
                try:
                    last = draw(console)
                    live.update(last, refresh=True)
                except ClusterError as error:
                    live.update(
                        Group(Text(f"{error} Retrying; this is the last answer:", style="red"), last), refresh=True
                    )
                time.sleep(_INTERVAL_S)
        except KeyboardInterrupt:
            pass
    console.print(last)


def _session_status(called: Session, name: str | None, *, watch: bool, as_json: bool) -> None:
    if name is None:
        _list_sessions(called, as_json=as_json)
        return
    remote = session(name)
    if as_json:
        click.echo(remote.raw_status())
    elif watch:
        _redraw(called.out, lambda _: session_table(remote.status()))
    else:
        called.out.print(session_table(remote.status()))


def _list_sessions(called: Session, *, as_json: bool) -> None:
    found = [(each, Remote(each).status()) for each in sessions()]
    if as_json:
        click.echo(msgspec.json.encode({"sessions": [status for _, status in found]}))
        return
    if not found:
        called.out.print(
            "No session of 'millpond dev' runs on this machine. Add --kubernetes for the StreamApps of a cluster."
        )
        return
    table = grid("name", "process>", "workers>", "tasks running>", "brokers")
    for each, status in found:
        workers = f"{sum(worker.pid > 0 for worker in status.workers)}/{status.wanted}"
        table.add_row(
            Text(each.application, style="bold"), str(each.pid), workers,
            f"{len(status.running)}/{status.tasks}", status.bootstrap_servers,
        )  # fmt: skip
    called.out.print(table)
