"""`millpond snapshot`: make, list, verify and delete snapshots of an application's state."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.cli.application import load_topology
from millpond.cli.options import configuration_options, load_config, target_argument, verbose_option
from millpond.cli.session import Session
from millpond.cli.session_broker import of_session, session_option
from millpond.errors import SnapshotError
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest
from millpond.times import iso

from .options import existing_version, location_options, snapshot_place
from .reports import reporting, write_result

if TYPE_CHECKING:
    from millpond_spark.job import Snapshot
    from millpond_spark.progress import Stage

__all__ = ("command",)


@click.group("snapshot", short_help="Make, list, verify and delete snapshots of an application's state.")
def command() -> None:
    """Snapshots of an application's state: files that a worker loads instead of replaying changelogs.

    They are kept in a directory or in an S3-compatible object store. Its credentials come from the usual environment
    variables, such as AWS_ACCESS_KEY_ID, or from files with these names in a directory.
    """


@command.command("create", short_help="Make a snapshot with Spark.")
@target_argument
@location_options
@click.option("--keep", type=click.IntRange(1), metavar="COUNT", help="Delete all versions but the newest COUNT.")
@click.option(
    "--master", metavar="URL", default="local[*]", help="The Spark master. Default: Spark runs in this process."
)
@click.option(
    "--catalog",
    metavar="URI",
    help="Also write every store as an Apache Iceberg table to this place. Default: the setting 'catalog.location'.",
)
@click.option(
    "--full", is_flag=True, help="Read changelogs from the beginning, instead of building on the previous version."
)
@click.option("--report-to", metavar="URL", hidden=True, help="The status of a StateBootstrap in the Kubernetes API.")
@session_option
@configuration_options
@verbose_option
@click.pass_obj
def create(  # noqa: PLR0913 - one parameter per option
    session: Session,
    target: str,
    uri: str | None,
    credentials_dir: Path | None,
    keep: int | None,
    master: str,
    catalog: str | None,
    report_to: str | None,
    named: str | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    full: bool,
) -> None:
    """Make a snapshot of the stores of the application at MODULE:ATTRIBUTE.

    The application may run meanwhile. After a previous version, only newer changelog records are read.
    """
    try:
        from millpond_spark.session import require_spark
        from millpond_spark.session import session as spark_session
    except ModuleNotFoundError as error:
        raise SnapshotError(
            f"this installation of millpond cannot make snapshots ('{error.name}' is missing): use one with "
            "\"pip install 'millpond[spark]'\", not the worker's image."
        ) from error

    session.log_to_stderr()
    early = load_config(file, flags, required=(), beside_session=True, imports=False)
    topology = load_topology(target, early.topology_optimization)
    config = load_config(file, of_session(named, file, flags, target)[0])
    place = snapshot_place(config, uri, credentials_dir)
    catalog = catalog or config.catalog_location
    require_spark()
    from millpond_spark.job import create_snapshot

    with _sigterm_interrupts(), _progress(session) as show, reporting(report_to, show) as on_progress:
        made = create_snapshot(
            topology,
            config,
            place.uri,
            lambda: spark_session(master, catalog=catalog),
            credentials_dir=place.credentials_dir,
            keep=keep,
            full=full,
            catalog=catalog,
            on_progress=on_progress,
        )
    write_result(made)
    _show(made, session)


@command.command("list", short_help="List the snapshots of an application.")
@location_options
@configuration_options
@verbose_option
@click.pass_obj
def list_(
    session: Session, uri: str | None, credentials_dir: Path | None, file: Path | None, flags: dict[str, object]
) -> None:
    """List the complete versions of an application's snapshot, newest first."""
    location, application = _opened(uri, credentials_dir, file, flags)
    found = versions.versions(location, application)
    if not found:
        session.out.print(f"No snapshot of '{escape(application)}'.")
        return
    table = _table("version", "as of", "stores", "rows", "size")
    for version in found:
        try:
            manifest = versions.read(location, application, version)
        except SnapshotError as error:
            table.add_row(version, escape(str(error)), "", "", "")
            continue
        rows, size = _sums(manifest)
        table.add_row(version, _time(manifest.created_ms), str(len(manifest.stores)), f"{rows:,}", decimal(size))
    session.out.print(table)


@command.command("verify", short_help="Check the files of a snapshot against its manifest.")
@click.argument("version", required=False)
@location_options
@configuration_options
@verbose_option
@click.pass_obj
def verify(  # noqa: PLR0913 - one parameter per option
    session: Session,
    version: str | None,
    uri: str | None,
    credentials_dir: Path | None,
    file: Path | None,
    flags: dict[str, object],
) -> None:
    """Check every file of VERSION, or of the newest version, against the manifest."""
    location, application = _opened(uri, credentials_dir, file, flags)
    version = existing_version(location, application, version)
    manifest = versions.read(location, application, version)
    with session.err.status(f"reading {len(manifest.files)} files"):
        wrong = versions.verify(location, manifest)
    for each in wrong:
        session.err.print(f"  {escape(each)}", soft_wrap=True)
    if wrong:
        raise SnapshotError(
            f"snapshot {version} of '{application}': {len(wrong)} of {len(manifest.files)} files are missing or "
            "damaged: delete it, and make another one."
        )
    rows, size = _sums(manifest)
    session.out.print(
        f"Snapshot {version} of '{escape(application)}' is complete: {len(manifest.files)} files, {rows:,} rows, "
        f"{decimal(size)}."
    )


@command.command("delete", short_help="Delete snapshots.")
@click.argument("chosen", metavar="VERSION…", nargs=-1, required=True)
@location_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@configuration_options
@verbose_option
@click.pass_obj
def delete(  # noqa: PLR0913 - one parameter per option
    session: Session,
    chosen: tuple[str, ...],
    uri: str | None,
    credentials_dir: Path | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    yes: bool,
) -> None:
    """Delete versions of an application's snapshot. A worker that loads one of them replays its changelogs instead."""
    location, application = _opened(uri, credentials_dir, file, flags)
    found = [existing_version(location, application, version) for version in chosen]
    if not yes:
        click.confirm(f"Delete {', '.join(found)} of '{application}'?", abort=True, err=True)
    for version in found:
        versions.remove(location, application, version)
        session.out.print(f"Snapshot {version} of '{escape(application)}' is deleted.")


def _opened(
    uri: str | None, credentials_dir: Path | None, file: Path | None, flags: dict[str, object]
) -> tuple[Location, str]:
    """Return the location of snapshots, and the `application.id`."""
    config = load_config(file, flags, required=("application.id",), imports=False)
    return open_location(*snapshot_place(config, uri, credentials_dir)), config.application_id


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Make SIGTERM end the work like Ctrl-C, so that temporary files are removed."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[Stage, int, int], None]]:
    """Yield a function that shows progress: a bar on a terminal, a line for each stage elsewhere."""
    shown: list[Stage] = []
    if not session.live:

        def print_stage(stage: Stage, _done: int, _total: int) -> None:
            if stage not in shown:
                shown.append(stage)
                session.err.print(f"{stage}", markup=False)

        yield print_stage
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[tasks]}"), TimeElapsedColumn())
    with Progress(*columns, console=session.err, transient=True) as progress:
        bar = progress.add_task("", total=None, tasks="")

        def draw(stage: Stage, done: int, total: int) -> None:
            tasks = f"{done} of {total} tasks" if total else ""
            progress.update(bar, description=str(stage), completed=done, total=total or None, tasks=tasks)

        yield draw


def _show(made: Snapshot, session: Session) -> None:
    manifest = made.manifest
    undecoded = {each.store: f"{each.undecoded_keys:,} / {each.undecoded_values:,}" for each in made.tables}
    columns = ("store", "partitions", "records read", "rows", "size")
    table = _table(*columns, "undecoded keys / values") if undecoded else _table(*columns)
    for store in manifest.stores:
        rows, size = sum(part.rows for part in store.parts), sum(part.bytes for part in store.parts)
        records = made.records.get(store.store, 0)
        cells = [escape(store.store), str(len(store.parts)), f"{records:,}", f"{rows:,}", decimal(size)]
        table.add_row(*cells, *([undecoded[store.store]] if store.store in undecoded else []))
    session.out.print(table)
    for name, reason in sorted(made.skipped.items()):
        session.out.print(f"[dim]store {escape(name)} is not in the snapshot: it {reason}[/]")
    for each in made.tables:
        if each.undecoded_reason is not None:
            session.out.print(
                f"[dim]table {escape(each.store)} has undecoded bytes: {escape(each.undecoded_reason)}[/]"
            )
    base = f", built on {made.base}" if made.base else ""
    session.out.print(
        f"Snapshot {manifest.version} of '{escape(manifest.application)}': {len(manifest.files)} files in "
        f"{made.seconds:.1f} seconds{base}."
    )
    for version in made.removed:
        session.out.print(f"Snapshot {version} is deleted, since --keep keeps newer ones.")


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _sums(manifest: Manifest) -> tuple[int, int]:
    """Return the numbers of rows and bytes of all stores."""
    files = manifest.files
    return sum(file.rows for file in files), sum(file.bytes for file in files)


def _time(ms: int) -> str:
    return iso(ms, "seconds", " ")
