"""`millpond snapshot`: make, list, verify and delete snapshots of an application's state."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.errors import ConfigError, SnapshotError
from millpond.runtime.config.model import Config
from millpond.snapshots import versions
from millpond.snapshots.locations import Location, open_location
from millpond.snapshots.manifest import Manifest

from .application import load_topology
from .options import configuration_options, load_config, target_argument, verbose_option
from .session import Session
from .snapshot_reports import reporting, write_result

if TYPE_CHECKING:
    from millpond_spark.job import Snapshot
    from millpond_spark.progress import Stage

__all__ = ("command",)


@click.group("snapshot", short_help="Make, list, verify and delete snapshots of an application's state.")
def command() -> None:
    """Snapshots of an application's state: files that a worker loads instead of replaying changelogs.

    They are kept in a directory or in an S3-compatible object store. Its credentials come from the usual variables, such as
    AWS_ACCESS_KEY_ID, or from files of these names in a directory.
    """


def _location_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--location`` and ``--credentials-dir``."""
    credentials = click.option(
        "--credentials-dir", type=click.Path(path_type=Path), metavar="DIR",
        help="With files named AWS_ACCESS_KEY_ID and so on, as a mounted Secret has them.",
    )  # fmt: skip
    location = click.option(
        "--location",
        "uri",
        metavar="URI",
        help="A directory, file:///directory or s3://bucket/prefix. Default: the setting 'bootstrap.location'.",
    )
    return location(credentials(function))


@command.command("create", short_help="Make a snapshot with Spark.")
@target_argument
@_location_options
@click.option("--keep", type=click.IntRange(1), metavar="COUNT", help="Delete all versions but the newest COUNT.")
@click.option("--master", metavar="URL", default="local[*]", help="Where Spark runs. Default: in this process.")
@click.option(
    "--catalog",
    metavar="URI",
    help="Write every store as an Apache Iceberg table there, too. Default: the setting 'catalog.location', if it is set.",
)
@click.option("--full", is_flag=True, help="Read changelogs from the beginning, and build upon no previous version.")
@click.option("--report-to", metavar="URL", hidden=True, help="The status of a StateBootstrap at the Kubernetes API.")
@configuration_options
@verbose_option
@click.pass_obj
def create(
    session: Session,
    target: str,
    uri: str | None,
    credentials_dir: Path | None,
    keep: int | None,
    master: str,
    catalog: str | None,
    report_to: str | None,
    file: Path | None,
    flags: dict[str, object],
    *,
    full: bool,
) -> None:
    """Make a snapshot of the stores of the application at MODULE:ATTRIBUTE.

    The application may run meanwhile, and is not disturbed. Where there is a previous version, only what the changelogs got
    since is read.
    """
    try:
        from millpond_spark.session import require_spark
        from millpond_spark.session import session as spark_session
    except ModuleNotFoundError as error:
        raise SnapshotError(
            f"this installation of millpond cannot make snapshots ('{error.name}' is missing): use one that has "
            "\"pip install 'millpond[spark]'\", and not the worker's image."
        ) from error

    session.log_to_stderr()
    topology = load_topology(target)
    config = load_config(file, flags)
    place = _place(config, uri, credentials_dir)
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
@_location_options
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
        session.out.print(f"There is no snapshot of '{escape(application)}'.")
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


@command.command("verify", short_help="Read the files of a snapshot, and check that they are as they were written.")
@click.argument("version", required=False)
@_location_options
@configuration_options
@verbose_option
@click.pass_obj
def verify(
    session: Session,
    version: str | None,
    uri: str | None,
    credentials_dir: Path | None,
    file: Path | None,
    flags: dict[str, object],
) -> None:
    """Check every file of VERSION, or of the newest version, against the manifest."""
    location, application = _opened(uri, credentials_dir, file, flags)
    version = _chosen(location, application, version)
    manifest = versions.read(location, application, version)
    with session.err.status(f"reading {len(manifest.files)} files"):
        wrong = versions.verify(location, manifest)
    for each in wrong:
        session.err.print(f"  {escape(each)}", soft_wrap=True)
    if wrong:
        raise SnapshotError(
            f"snapshot {version} of '{application}' has {len(wrong)} of {len(manifest.files)} files that cannot be used: "
            "delete it and make another one."
        )
    rows, size = _sums(manifest)
    session.out.print(
        f"Snapshot {version} of '{escape(application)}' is whole: {len(manifest.files)} files, {rows:,} rows, {decimal(size)}."
    )


@command.command("delete", short_help="Delete snapshots.")
@click.argument("chosen", metavar="VERSION…", nargs=-1, required=True)
@_location_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@configuration_options
@verbose_option
@click.pass_obj
def delete(
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
    found = [_chosen(location, application, version) for version in chosen]
    if not yes:
        click.confirm(f"Delete {', '.join(found)} of '{application}'?", abort=True, err=True)
    for version in found:
        versions.remove(location, application, version)
        session.out.print(f"Snapshot {version} of '{escape(application)}' is deleted.")


class _Place(NamedTuple):
    """Where snapshots are kept."""

    uri: str
    credentials_dir: Path | None


def _place(config: Config, uri: str | None, credentials_dir: Path | None) -> _Place:
    """Return the place of the options, else that of the configuration, from which workers load snapshots.

    Raises:
        ConfigError: neither names one.
    """
    if uri is not None:
        return _Place(uri, credentials_dir)
    if config.bootstrap_location is None:
        raise ConfigError("name where snapshots are kept: --location URI, or the setting 'bootstrap.location'.")
    return _Place(config.bootstrap_location, credentials_dir or config.bootstrap_credentials_dir)


def _opened(
    uri: str | None, credentials_dir: Path | None, file: Path | None, flags: dict[str, object]
) -> tuple[Location, str]:
    """Return the location, and the application's id."""
    config = load_config(file, flags, required=("application.id",))
    return open_location(*_place(config, uri, credentials_dir)), config.application_id


def _chosen(location: Location, application: str, version: str | None) -> str:
    """Return a version that is there; the newest when none is named.

    Raises:
        SnapshotError: there is none, or not this one.
    """
    found = versions.versions(location, application)
    if not found:
        raise SnapshotError(
            f"there is no snapshot of '{application}' in '{location.uri}': check --location and --application-id."
        )
    if version is not None and version not in found:
        raise SnapshotError(
            f"there is no snapshot {version} of '{application}': 'millpond snapshot list' shows those that there are."
        )
    return version or found[0]


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM end the work as Ctrl-C does, so that nothing of it is left."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[Stage, int, int], None]]:
    """Yield what shows how far a snapshot is: a bar on a terminal, a line for each stage elsewhere."""
    shown: list[Stage] = []
    if not session.live:

        def tell(stage: Stage, _done: int, _total: int) -> None:
            if stage not in shown:
                shown.append(stage)
                session.err.print(f"{stage}", markup=False)

        yield tell
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
    # What is in the table of the catalog, and could not be decoded.
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
        session.out.print(f"[dim]store {escape(name)} is left out: it {reason}[/]")
    for each in made.tables:
        if each.undecoded_reason is not None:
            session.out.print(f"[dim]table {escape(each.store)} has bytes: {escape(each.undecoded_reason)}[/]")
    base = f", built upon {made.base}" if made.base else ""
    session.out.print(
        f"Snapshot {manifest.version} of '{escape(manifest.application)}': {len(manifest.files)} files in "
        f"{made.seconds:.1f} seconds{base}."
    )
    for version in made.removed:
        session.out.print(f"Snapshot {version} is deleted: newer ones are kept.")


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _sums(manifest: Manifest) -> tuple[int, int]:
    """Return rows and bytes of all stores."""
    files = manifest.files
    return sum(file.rows for file in files), sum(file.bytes for file in files)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
