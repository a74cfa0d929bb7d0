"""`millpond drain`: move the tasks of a worker to other workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import Console

from millpond.cli.cluster import drains
from millpond.cli.cluster.applications import Applications, Report
from millpond.cli.cluster.options import Where, duration_option, where_options
from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.durations import Duration
from millpond.errors import MillpondError
from millpond.protocol.overview import ApplicationOverview

from .sources import connected, session

__all__ = ("command", "describe", "wait")

_INTERVAL_S = 1.0


@click.command("drain", short_help="Move the tasks of a worker to other workers.")
@click.argument("name")
@click.argument("worker", required=False)
@where_options
@click.option("--undo", is_flag=True, help="Let WORKER get tasks again; without WORKER, all workers.")
@click.option("--wait", "waits", is_flag=True, help="Show progress until WORKER has no task.")
@duration_option("--timeout", default="30m", show_default=True, help="With --wait: for how long.")
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    called: Session, name: str, worker: str | None, where: Where, timeout: Duration, *, undo: bool, waits: bool
) -> None:
    """Move the tasks of WORKER to the other workers of the application NAME, each when a caught-up copy can take over.

    On Kubernetes, WORKER is the name of its pod or the number at the end of it. The pod keeps running without tasks
    until --undo: it may be deleted, or its node may be drained, without a pause. The request is the annotation
    millpond.dev/drain of the StreamApp, which the operator obeys.

    In a session of this machine, the worker stops when it is empty, as by `millpond dev drain`.

    \b
    millpond drain --kubernetes delays 2 --wait
    millpond drain --kubernetes delays 2 --undo
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if worker is None and not undo:
        raise click.UsageError("name the worker to drain.")
    if not where.on_cluster:
        _drain_in_session(name, worker, undo=undo, waits=waits)
        return
    with connected(where) as (cluster, applications):
        app = applications.find(name)
        chosen = None if worker is None else _worker(app, worker, undo=undo)
        app = drains.change(cluster, app, chosen, undo=undo)
        paused = (app["metadata"].get("annotations") or {}).get("millpond.dev/reconcile") == "paused"
        if undo:
            called.out.print(f"{chosen or 'All workers'} may get tasks again.")
            return
        assert chosen is not None
        called.out.print(
            f"{chosen} is asked to hand over its tasks; `--undo` lets it get tasks again.", markup=False, soft_wrap=True
        )
        if paused:
            called.err.print("Nothing moves while the annotation millpond.dev/reconcile is 'paused': remove it.")
        if waits:
            place = f"{app['metadata']['namespace']}/{app['metadata']['name']}"
            wait(chosen, lambda: _read(applications, place), called.out, timeout)


def wait(  # noqa: PLR0913 - clock and sleep are a test's
    worker: str,
    read: Callable[[], Report],
    console: Console,
    timeout: Duration,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Show the progress of a drain until the worker has no task.

    Args:
        worker: its name.
        read: reads the application.
        console: shows a line for each change.
        timeout: for how long at most.
        sleep: waits for seconds.
        clock: returns seconds.

    Raises:
        MillpondError: the drain is refused, or not at its end in time.
    """
    deadline = clock() + timeout.total_seconds()
    last = ""
    while True:
        report = read()
        draining = (report.app.get("status") or {}).get("draining") or {}
        text, done = describe(worker, draining, report.overview)
        if text != last:
            console.print(text, markup=False, soft_wrap=True)
            last = text
        if done:
            return
        if worker not in drains.requested(report.app):
            raise MillpondError(f"the drain of '{worker}' was undone meanwhile: ask again if that was not meant.")
        if draining.get("message") and worker in draining.get("workers", ()) and "names all" in draining["message"]:
            raise MillpondError(draining["message"])
        if clock() >= deadline:
            raise MillpondError(
                f"'{worker}' still has tasks after {timeout}, and the drain continues: see what they wait for by "
                "`millpond tasks --worker`, or undo it."
            )
        sleep(_INTERVAL_S)


def describe(worker: str, draining: Mapping[str, Any], overview: ApplicationOverview) -> tuple[str, bool]:
    """Return the progress of a drain as a sentence, and whether the worker has no task.

    Args:
        worker: its name.
        draining: `status.draining` of the StreamApp.
        overview: the application.
    """
    if worker not in draining.get("workers", ()):
        return "Waiting for the operator to see the request.", False
    if worker in draining.get("drained", ()):
        return f"{worker} has no task.", True
    if draining.get("message"):
        return str(draining["message"]), False
    left = [each for each in overview.tasks if worker in {each.worker, each.owner}]
    if not left:
        return f"{worker} has no task by the assignment; waiting for the operator to confirm it.", False
    reasons = {each.task: each.reason for each in overview.moves}
    why = next((reason for each in left if (reason := each.note or reasons.get(each.task, ""))), "")
    tasks = "1 task is" if len(left) == 1 else f"{len(left)} tasks are"
    return f"{tasks} left on {worker}{f': {why}' if why else ''}.".replace("..", "."), False


def _worker(app: Mapping[str, Any], text: str, *, undo: bool) -> str:
    """Return the worker of a name. What is undone may name a worker that no longer exists."""
    return text if undo and text in drains.requested(app) else drains.worker_named(app, text)


def _read(applications: Applications, place: str) -> Report:
    return applications.report(applications.find(place))


def _drain_in_session(name: str, worker: str | None, *, undo: bool, waits: bool) -> None:
    if undo:
        raise click.UsageError(
            "a drained worker of a session has stopped: `millpond dev scale WORKERS` starts it again. --undo is for "
            "--kubernetes."
        )
    assert worker is not None
    remote = session(name)
    click.echo(remote.command("drain", worker=worker))
    while waits:
        found = next((each for each in remote.status().workers if each.worker == worker), None)
        if found is None or not found.pid:
            click.echo(f"{worker} has stopped.")
            return
        time.sleep(_INTERVAL_S)
