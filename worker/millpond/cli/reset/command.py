"""`millpond reset`: let an application process its inputs from the beginning, or from other offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millpond.cli.application import load_topology
from millpond.cli.dev.status import SessionStatus
from millpond.cli.options import configuration_options, load_config, verbose_option
from millpond.cli.session import Session
from millpond.cli.session_broker import of_session, session_option
from millpond.errors import ConfigError, MillpondError
from millpond.runtime.config.model import Config
from millpond.runtime.config.parsers import as_duration_ms
from millpond.runtime.missing_rights import Operation
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.presence import presence_group
from millpond.times import parse_epoch_ms

from .apply import apply_reset
from .cluster import Cluster
from .deletion import DeletePlan, apply_deletion, plan_deletion
from .internal_topics import Choice
from .plan import Inputs, ResetPlan, Target, plan_reset, topics_of, windows_behind
from .running import RunningWorkers
from .table_outputs import table_outputs

__all__ = ("command",)

_Offsets = Mapping[Partition, int]


@click.command("reset", short_help="Make an application start over: offsets, internal topics, local state.")
@click.argument("application", metavar="[MODULE:ATTRIBUTE]", required=False)
@click.option("--input-topics", metavar="TOPIC,…", multiple=True, help="The input topics, without MODULE:ATTRIBUTE.")
@click.option("--to-earliest", "where", flag_value="earliest", help="Read the inputs from their beginning (default).")
@click.option("--to-latest", "where", flag_value="latest", help="Read only new records.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Read every input partition from offset N.")
@click.option(
    "--to-datetime", metavar="WHEN", help="Read from a time on: 2026-01-31T12:00:00, UTC if it has no time zone."
)
@click.option("--by-duration", metavar="DURATION", help="Read from a duration ago: 90m, 12h, 7d.")
@click.option("--shift-by", type=int, metavar="N", help="Move each committed offset by N; back if N is negative.")
@click.option(
    "--delete",
    "deleting",
    is_flag=True,
    help="Delete internal topics and the consumer group of an application that is no longer used.",
)
@click.option(
    "--internal-topics",
    metavar="TOPIC,…",
    multiple=True,
    help="Delete these topics as well: internal topics of former versions of the application, as of a renamed store.",
)
@click.option("--keep-topics", metavar="TOPIC,…", multiple=True, help="Keep these topics: of another application.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Reset although workers seem to be running.")
@session_option
@configuration_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    session: Session,
    application: str | None,
    input_topics: tuple[str, ...],
    internal_topics: tuple[str, ...],
    keep_topics: tuple[str, ...],
    where: str | None,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
    named: str | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    deleting: bool,
    dry_run: bool,
    yes: bool,
    force: bool,
) -> None:
    """Make an application start over.

    Sets the committed offsets of its input topics, and deletes its internal topics (changelogs and repartition topics)
    and its local state on this machine. Output topics are not changed.

    Name the application by MODULE:ATTRIBUTE, so that its topics are known; or by --application-id and --input-topics.

    Without --bootstrap-servers, the broker is that of the application's session of `millpond dev`. Stop its workers
    before, by `millpond dev scale 0`, which keeps the broker.

    Topics with the prefix of the application that its code does not name may be of a former version of it, or of
    another application. If its committed offsets do not prove that they are its own, nothing is reset until you decide:
    --internal-topics deletes them, --keep-topics keeps them.

    With --delete, internal topics and the consumer group with its committed offsets are deleted. Local state is kept.
    """
    choice = Choice(_names(internal_topics), _names(keep_topics))
    if deleting:
        load_config(file, flags, required=(), beside_session=True, imports=False)
        if any(each is not None for each in (where, to_offset, to_datetime, by_duration, shift_by)):
            raise click.UsageError("--delete and options for offsets exclude each other: leave out one of them.")
        flags, status = of_session(named, file, flags, application)
        config = _with_broker(file, flags)
        _delete(session, application, config, _stop(status), choice, dry_run=dry_run, yes=yes, force=force)
        return
    target = _target(where, to_offset, to_datetime, by_duration, shift_by)
    inputs = Inputs(_names(input_topics))
    known: set[str] | None = None
    windows: list[str] = []
    tables: list[str] = []
    if application is not None:
        # What is wrong with the application is told before a setting that is missing.
        optimization = load_config(file, flags, required=(), beside_session=True, imports=False).topology_optimization
        topology = load_topology(application, optimization)
        of_topology, known = topics_of(topology)
        windows, tables = windows_behind(topology), table_outputs(topology)
        inputs = inputs if inputs.topics else of_topology
    elif not inputs.topics:
        raise click.UsageError("the application is missing: give MODULE:ATTRIBUTE, or --input-topics with its inputs.")
    flags, status = of_session(named, file, flags, application)
    config, stop = _with_broker(file, flags), _stop(status)
    with closing(Cluster(config)) as cluster:
        with session.err.status("reading topics and offsets"):
            plan = plan_reset(cluster, inputs, known, target, choice)
        _show(plan, session.out)
        if windows and plan.moves:
            session.out.print(
                f"  a replay through repartition topics is out of order: windows of {escape(', '.join(windows))} need "
                "a grace as long as the replayed time",
                soft_wrap=True,
            )
        if tables and plan.moves:
            session.out.print(
                f"  output topics of tables keep rows that the replay no longer yields: {escape(', '.join(tables))}. "
                "If there may be such rows, delete and create these topics before it, and reset their readers",
                soft_wrap=True,
            )
        workers = _Workers(cluster, session, stop, force=force)
        if not _confirmed(plan, session, workers, dry_run=dry_run, yes=yes):
            return
        if not yes:
            # A worker may have been started while the prompt waited.
            again = plan_reset(cluster, inputs, known, target, choice)
            if [move.before for move in again.moves] != [move.before for move in plan.moves]:
                raise MillpondError("the committed offsets changed meanwhile: stop the workers, and reset again.")
            workers.reject(again)
        with session.err.status("resetting"):
            apply_reset(cluster, plan, lambda: workers.reject(plan))
        again_by = "you run it again" if status is None else f"`millpond dev scale {status.usual}` starts workers again"
        session.out.print(
            f"Application '{escape(plan.application_id)}' is reset. It starts over when {again_by}.", soft_wrap=True
        )


def _with_broker(file: Path | None, flags: dict[str, object]) -> Config:
    """Return the configuration.

    Raises:
        ConfigError: a setting is missing; usually the broker, since a session has ended with it.
    """
    if not load_config(file, flags, required=(), imports=False).bootstrap_servers:
        raise ConfigError(
            "no broker is known: no session of `millpond dev` runs, and 'bootstrap.servers' is not set. Start the "
            "session again, with its --data-dir, or give --bootstrap-servers HOST:PORT."
        )
    return load_config(file, flags, imports=False)


def _delete(  # noqa: PLR0913 - the options of the command
    session: Session,
    application: str | None,
    config: Config,
    stop: str,
    choice: Choice,
    *,
    dry_run: bool,
    yes: bool,
    force: bool,
) -> None:
    inputs: frozenset[str] = frozenset()
    known: set[str] | None = None
    if application is not None:
        (inputs, _), known = topics_of(load_topology(application, config.topology_optimization))
    with closing(Cluster(config)) as cluster:
        with session.err.status("reading topics and offsets"):
            plan = plan_deletion(cluster, known, inputs, choice)
        _show_deletion(plan, session.out)
        workers = _Workers(cluster, session, stop, force=force)
        if not _confirmed(plan, session, workers, dry_run=dry_run, yes=yes):
            return
        if not yes:
            # A worker may have been started while the prompt waited.
            workers.reject(plan_deletion(cluster, known, inputs, choice))
        with session.err.status("deleting"):
            apply_deletion(cluster, plan, lambda: workers.reject(plan))
        session.out.print(f"Application '{escape(plan.application_id)}' is deleted from Kafka.")


def _show_deletion(plan: DeletePlan, console: Console) -> None:
    console.print(f"[bold]Application {escape(plan.application_id)}[/]")
    _show_topics(plan, console)
    if plan.group:
        console.print(f"  delete consumer group {escape(plan.application_id)} and its committed offsets")


def _stop(status: SessionStatus | None) -> str:
    """Return how to stop the workers, for messages."""
    if status is None:
        return "stop it first"
    return "run `millpond dev scale 0` first"


class _Workers:
    """The workers that seem to run, for the preview and for the refusal.

    Args:
        cluster: the Kafka clients.
        session: the session of the command line.
        stop: how to stop the workers.
        force: whether to go on although workers seem to run.
    """

    def __init__(self, cluster: Cluster, session: Session, stop: str, *, force: bool) -> None:
        self._cluster = cluster
        self._running = RunningWorkers(cluster, lambda line: session.err.print(escape(line), soft_wrap=True))
        self._stop = stop
        self._force = force

    def active(self, plan: ResetPlan | DeletePlan) -> str:
        """Return the signs of running workers as a part of a sentence; empty without signs, and with --force.

        Raises:
            BrokerError: their reports may not be read.
        """
        if self._force:
            return ""
        self._cluster.check_group_seen(Operation.DESCRIBE, presence_group(plan.application_id))
        return "; ".join(plan.active or self._running.signs())

    def reject(self, plan: ResetPlan | DeletePlan) -> None:
        """Raise if a worker seems to be running.

        Raises:
            MillpondError: see above.
        """
        if active := self.active(plan):
            raise MillpondError(
                f"a worker of '{plan.application_id}' seems to be running ({active}): {self._stop}, or use --force."
            )

    def preview(self, plan: ResetPlan | DeletePlan) -> str:
        """Return the line of a dry run about running workers; empty without signs of them."""
        if not (active := self.active(plan)):
            return ""
        return (
            f"A worker of '{plan.application_id}' seems to be running ({active}): without --dry-run this is refused. "
            f"{self._stop[0].upper()}{self._stop[1:]}, or use --force."
        )


def _confirmed(plan: ResetPlan | DeletePlan, session: Session, workers: _Workers, *, dry_run: bool, yes: bool) -> bool:
    """Return whether to apply the plan.

    Raises:
        MillpondError: a worker seems to be running.
        click.Abort: the answer to the prompt was no.
    """
    undecided = _undecided(plan) if isinstance(plan, ResetPlan) else ""
    if plan.empty and not undecided:
        session.out.print("Nothing to do.")
        return False
    if dry_run:
        if undecided:
            session.out.print(escape(f"Without --dry-run this is refused: {undecided}"), soft_wrap=True)
        if line := workers.preview(plan):
            session.out.print(escape(line), soft_wrap=True)
        session.out.print("This was a dry run: nothing was changed.")
        return False
    if undecided:
        raise MillpondError(undecided)
    workers.reject(plan)
    if not yes:
        click.confirm("Continue?", abort=True, err=True)
    return True


def _undecided(plan: ResetPlan) -> str:
    """Return why the user has to decide about topics first; empty if all are clear."""
    if not (topics := plan.unclear_topics):
        return ""
    listed, named = ",".join(topics), ", ".join(f"'{topic}'" for topic in topics)
    several = len(topics) > 1
    them, they_are = ("them", "they are") if several else ("it", "it is")
    return (
        f"the code of '{plan.application_id}' does not name topic{'s' if several else ''} {named}, which may have "
        f"state of a former version, such as a renamed store. State that is left behind counts replayed records twice "
        f"when a store gets its former name back. Nothing was changed. To delete {them}, add --internal-topics "
        f"{listed}; if {they_are} of another application, keep {them} by --keep-topics {listed}."
    )


def _names(given: Sequence[str]) -> frozenset[str]:
    """Return the names in values that are lists with commas."""
    return frozenset(name.strip() for each in given for name in each.split(",") if name.strip())


def _show(plan: ResetPlan, console: Console) -> None:
    console.print(f"[bold]Application {escape(plan.application_id)}[/]")
    if plan.moves:
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2))
        table.add_column("  input", no_wrap=True)
        for name in ("partition", "committed", "becomes"):
            table.add_column(name, justify="right")
        for move in plan.moves:
            before = "none" if move.before is None else str(move.before)
            style = None if move.before != move.after else "dim"
            table.add_row(
                f"  {move.partition.topic}", str(move.partition.partition), before, str(move.after), style=style
            )
        console.print(table)
    for topic in plan.recreated:
        console.print(f"  {escape(topic)} was deleted and created again since these offsets were committed")
    _show_topics(plan, console)
    for directory in plan.directories:
        console.print(f"  delete state {escape(str(directory))}", soft_wrap=True)


def _show_topics(plan: ResetPlan | DeletePlan, console: Console) -> None:
    for topic in plan.delete_topics:
        console.print(f"  delete topic {escape(topic)}", soft_wrap=True)
    for topic, reason in plan.keep_topics.items():
        console.print(f"  keep topic {escape(topic)}: {escape(reason)}", soft_wrap=True)
    for topic in plan.unclear_topics:
        console.print(
            f"  [bold]keep topic {escape(topic)}: the code does not name it. Delete it by --internal-topics "
            f"{escape(topic)} if it is of a former version of {escape(plan.application_id)}[/]", soft_wrap=True,
        )  # fmt: skip


def _target(
    where: str | None,
    to_offset: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    shift_by: int | None,
) -> Target:
    given = [value for value in (where, to_offset, to_datetime, by_duration, shift_by) if value is not None]
    if len(given) > 1:
        raise click.UsageError(
            "choose one of --to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by."
        )
    if to_offset is not None:
        return lambda _cluster, partitions, _committed: dict.fromkeys(partitions, to_offset)
    if to_datetime is not None:
        return _since(_timestamp_ms(to_datetime))
    if by_duration is not None:
        return _since(int(time.time() * 1000) - _duration_ms(by_duration))
    if shift_by is not None:
        return lambda _cluster, partitions, committed: {
            each: committed[each] + shift_by for each in partitions if each in committed
        }
    end = 1 if where == "latest" else 0
    return lambda cluster, partitions, _committed: {
        each: found[end] for each, found in cluster.ends(partitions).items()
    }


def _since(timestamp_ms: int) -> Target:
    def choose(cluster: Cluster, partitions: Sequence[Partition], _committed: _Offsets) -> _Offsets:
        return cluster.offsets_at(partitions, timestamp_ms)

    return choose


def _timestamp_ms(text: str) -> int:
    try:
        return parse_epoch_ms(text)
    except ValueError:
        raise ConfigError(f"--to-datetime {text!r}: expected a time such as 2026-01-31T12:00:00 or …+02:00.") from None


def _duration_ms(text: str) -> int:
    try:
        return int(as_duration_ms(0)(text))
    except ValueError as error:
        raise ConfigError(f"--by-duration {text!r}: {error}.") from error
