"""`millpond logs`: the logs of an application's workers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from millpond.cli.cluster import drains
from millpond.cli.cluster.applications import Applications
from millpond.cli.cluster.client import Cluster
from millpond.cli.cluster.failures import ClusterError, NotFound
from millpond.cli.cluster.options import Where, duration_option, where_options
from millpond.cli.options import verbose_option
from millpond.cli.session import Session
from millpond.cli.status.sources import connected, name_option, now_ms, session, streamapp
from millpond.durations import Duration
from millpond.errors import MillpondError

from .containers import CONTAINER, Container, container_of, task_worker
from .files import print_files
from .follow import Follower
from .lines import Line, Printer, merged, parsed

__all__ = ("command",)

_CRASH_SHOWN = Duration.parse("10m")
"""How long ago a container may have ended whose log is shown before that of the present one, without `--since`."""
_CRASH_LINES = 50


@click.command("logs", short_help="Show the logs of workers.")
@where_options
@name_option
@click.option("--worker", "workers", metavar="WORKER", multiple=True, help="Only this worker; may be repeated.")
@click.option(
    "--task", metavar="TASK", help="Only the worker that has this task, such as 0_3; with -f, wherever it moves."
)
@click.option("-f", "--follow", is_flag=True, help="Wait for further lines, also of pods that replace others.")
@duration_option("--since", help="Only lines of the last minutes or hours, such as 10m.")
@click.option("--tail", type=click.IntRange(0), metavar="COUNT", help="Only the last lines of each worker.")
@click.option("--timestamps", is_flag=True, help="Show the time at which Kubernetes received each line.")
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    _called: Session,
    name: str | None,
    where: Where,
    workers: tuple[str, ...],
    task: str | None,
    since: Duration | None,
    tail: int | None,
    *,
    follow: bool,
    timestamps: bool,
) -> None:
    """Show the logs of the workers of the application NAME, each line behind its worker's name, in order of time.

    NAME is as for `millpond status`; it may be left out if one session runs on this machine. If a worker's container
    was started again a short time ago, the end of its log before that is shown first.

    \b
    millpond logs -f
    millpond logs --kubernetes delays --since 10m
    millpond logs --kubernetes delays --task 0_3 -f
    """  # noqa: D301 - click's mark for lines that are not wrapped
    if task is not None and workers:
        raise click.UsageError("--task and --worker cannot be used together.")
    if not where.on_cluster:
        if since is not None or timestamps:
            raise click.UsageError("--since and --timestamps are for --kubernetes.")
        print_files(session(name), workers, task, follow=follow, tail=tail)
        return
    name = streamapp(name)
    with connected(where) as (cluster, applications):
        logs = _Logs(cluster, applications, name, workers, task)
        printer = Printer(logs.names(), timestamps=timestamps)
        since_seconds = None if since is None else max(1, int(since.total_seconds()))
        if follow:
            for container in logs.containers().values():
                for line in logs.crashed(container, printer, since_seconds):
                    printer.line(line)
            with contextlib.suppress(KeyboardInterrupt):
                Follower(
                    logs.containers,
                    lambda worker, *, since_seconds: cluster.log(
                        logs.namespace,
                        worker,
                        follow=True,
                        container=CONTAINER,
                        timestamps=True,
                        since_seconds=since_seconds,
                        tail_lines=logs.first_tail(worker, tail),
                    ),
                    printer,
                    since_seconds,
                ).run()
        else:
            logs.show(printer, since_seconds, tail)


class _Logs:
    """The logs of one StreamApp.

    Args:
        cluster: the cluster.
        applications: its applications.
        name: of the StreamApp.
        workers: the chosen workers; empty for all.
        task: the task whose worker is chosen.

    Raises:
        ClusterError: there is no such StreamApp.
        MillpondError: it has no such worker or task.
    """

    def __init__(
        self, cluster: Cluster, applications: Applications, name: str, workers: tuple[str, ...], task: str | None
    ) -> None:
        self._cluster = cluster
        self._app = applications.find(name)
        self.namespace: str = self._app["metadata"]["namespace"]
        self._name: str = self._app["metadata"]["name"]
        self._task = task
        self._opened: set[str] = set()
        pods = {pod["metadata"]["name"] for pod in cluster.workers(self.namespace, self._name)}
        # Pods of a scale-in have logs, too.
        self._workers = {each if each in pods else drains.worker_named(self._app, each) for each in workers}
        if task is not None:
            self._check_task(task)

    def names(self) -> list[str]:
        """Return the names of the application's workers."""
        return drains.workers_of(self._app)

    def first_tail(self, worker: str, tail: int | None) -> int | None:
        """Return the number of last lines for the first log of a worker; None for the logs after that."""
        if worker in self._opened:
            return None
        self._opened.add(worker)
        return tail

    def containers(self) -> Mapping[str, Container]:
        """Return the containers whose logs are chosen now, by worker."""
        chosen: set[str] | None = self._workers or None
        if self._task is not None:
            chosen = {task_worker(self._assignment(), self._task)}
        pods = self._cluster.workers(self.namespace, self._name)
        found = map(container_of, pods)
        return {each.worker: each for each in found if chosen is None or each.worker in chosen}

    def crashed(self, container: Container, printer: Printer, since_seconds: int | None) -> Iterator[Line]:
        """Yield the last lines of the container before this one, if that ended a short time ago."""
        allowed = _CRASH_SHOWN.total_seconds() if since_seconds is None else since_seconds
        if not container.crash or now_ms() - container.crashed_ms > allowed * 1000:
            return
        printer.note(container.worker, f"the container before this one ended: {container.crash}; the end of its log:")
        # The node may have deleted it.
        with (
            contextlib.suppress(ClusterError),
            self._cluster.log(
                self.namespace,
                container.worker,
                follow=False,
                container=CONTAINER,
                timestamps=True,
                previous=True,
                tail_lines=_CRASH_LINES,
            ) as raw,
        ):
            for each in raw:
                yield parsed(container.worker, each)

    def show(self, printer: Printer, since_seconds: int | None, tail: int | None) -> None:
        """Print the logs by time."""
        failures: list[ClusterError] = []
        with contextlib.ExitStack() as stack:
            logs: list[Iterable[Line]] = []
            read = False
            containers = self.containers()
            if not containers:
                raise MillpondError(self._nothing())
            for container in containers.values():
                if not container.has_log:
                    printer.note(container.worker, f"no log yet: {container.waits_for}")
                    continue
                if not container.running:
                    printer.note(container.worker, f"the container does not run: {container.waits_for}")
                logs.append(list(self.crashed(container, printer, since_seconds)))
                try:
                    raw = stack.enter_context(
                        self._cluster.log(
                            self.namespace,
                            container.worker,
                            follow=False,
                            container=CONTAINER,
                            timestamps=True,
                            since_seconds=since_seconds,
                            tail_lines=tail,
                        )
                    )
                except ClusterError as error:
                    failures.append(error)
                    continue
                read = True
                logs.append(_parsed(container.worker, raw))
            if failures and not read:
                raise failures[0]
            for line in merged(logs):
                printer.line(line)
        for failure in failures:
            click.echo(f"millpond: {failure}", err=True)

    def _nothing(self) -> str:
        """Return why there is no log."""
        where = f"see `millpond status {self.namespace}/{self._name} --kubernetes`, or wait with --follow."
        if self._task is not None:
            return f"task '{self._task}' is assigned to no worker that has a pod now: {where}"
        if self._workers:
            return f"{' and '.join(sorted(self._workers))} of StreamApp '{self._name}' has no pod: {where}"
        return f"StreamApp '{self._name}' has no pods of workers, so there is no log: {where}"

    def _assignment(self) -> Mapping[str, Any]:
        try:
            return self._cluster.stream_assignment(self.namespace, self._name)
        except NotFound:
            return {}

    def _check_task(self, task: str) -> None:
        saved = self._assignment().get("spec", {})
        known = {
            f"{part['id']}_{partition}"
            for part in (saved.get("topology") or {}).get("subtopologies", ())
            for partition in range(part["partitions"])
        }
        if task not in known:
            raise MillpondError(
                f"StreamApp '{self._name}' has no task '{task}': a task is a sub-topology and a partition, such as 0_3."
                f" `millpond tasks {self._name} --kubernetes` lists them."
            )


def _parsed(worker: str, raw: Iterator[bytes]) -> Iterator[Line]:
    for each in raw:
        yield parsed(worker, each)
