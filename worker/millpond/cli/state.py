"""`millpond state`: look into state. Compare it with a snapshot, export it, show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from millpond.errors import StateError
from millpond.inspection.decoding import LoggedStore, RowDecoder, find_store, stores_of
from millpond.inspection.directory import open_directories
from millpond.inspection.exporting import export_parquet, require_pyarrow
from millpond.inspection.reading import all_rows, places
from millpond.inspection.snapshot import SnapshotSource
from millpond.inspection.sources import RowSource
from millpond.inspection.tails import Changelogs
from millpond.inspection.verifying import Checked, verify
from millpond.inspection.workers import RunningWorker, find_workers
from millpond.runtime.config.model import Config
from millpond.snapshots import versions
from millpond.snapshots.layouts import StoreLayout
from millpond.snapshots.locations import open_location
from millpond.snapshots.store_columns import StoreColumns, columns_of

from .application import load_topology
from .options import configuration_options, load_config, verbose_option
from .query import _Json, _Tables, _urls
from .session import Session
from .snapshot import _chosen, _location_options, _place
from .verify_report import conclude, show_checked

__all__ = ("command",)

_SHOWN_ROWS = 20


@click.group("state", short_help="Look into state: compare it with a snapshot, export it, show it.")
def command() -> None:
    """Look into an application's state, without changing it and while it runs."""


def _source_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where rows are read from, and what decodes them."""
    for option in (
        click.option("--app", "target", metavar="MODULE:ATTRIBUTE", help="The application, whose serdes decode rows."),
        click.option("--url", "urls", metavar="URL", multiple=True, help="A running worker, as http://host:port; the "
                     "others are found through it."),
        click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="With the token that workers want."),
        click.option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Certificates of workers to trust."),
    ):  # fmt: skip
        function = option(function)
    return _location_options(function)


class _Given(NamedTuple):
    """The options that the commands share."""

    config: Config
    stores: dict[str, LoggedStore] | None
    """Of the application; None when it was not named."""
    uri: str | None
    credentials_dir: Path | None
    urls: tuple[str, ...]
    token_file: Path | None
    ca_file: Path | None
    directory: Path | None
    """Of stopped workers."""

    @classmethod
    def of(
        cls,
        file: Path | None,
        flags: dict[str, object],
        target: str | None,
        required: tuple[str, ...] = ("application.id",),
        **given: Any,
    ) -> _Given:
        directory = flags.pop("state.dir", None)
        if directory is not None and given["urls"]:
            raise click.UsageError("give --url for running workers, or --state-dir for stopped ones, not both.")
        config = load_config(file, flags, required=required)
        stores = None if target is None else stores_of(load_topology(target), config)
        return cls(config, stores, directory=None if directory is None else Path(str(directory)), **given)

    def workers(self, stack: ExitStack) -> list[RunningWorker]:
        """The running workers that are named, or that the coordinator knows, and those that they know."""
        config = self.config
        if not self.urls and config.coordinator_url is None:
            raise click.UsageError(
                "say what to read: --url URL of a running worker (or the setting 'coordinator.url'), or --state-dir DIR of stopped ones."
            )
        urls = _urls(
            self.urls,
            config.coordinator_url,
            config.application_id,
            config.coordinator_token_file,
            config.coordinator_ca_file,
        )
        found = find_workers(
            urls,
            config.application_id,
            token_file=self.token_file or config.query_token_file,
            ca_file=self.ca_file or config.query_ssl_ca_location,
        )
        for each in found:
            stack.callback(each.close)
        return found

    def directories(self, stack: ExitStack) -> list[RowSource]:
        """The directories of stopped workers."""
        assert self.directory is not None
        found = open_directories(self.directory, self.config.application_id)
        for each in found:
            stack.callback(each.close)
        return list(found)

    def snapshot(self, version: str | None) -> SnapshotSource:
        """A version of the snapshot, the newest unless one is named."""
        location = open_location(*_place(self.config, self.uri, self.credentials_dir))
        application = self.config.application_id
        return SnapshotSource(location, versions.read(location, application, _chosen(location, application, version)))


@command.command("verify", short_help="Compare the stores of workers with a snapshot.")
@click.argument("version", required=False)
@click.option("--store", "chosen", metavar="STORE", multiple=True, help="Compare this store only; may be repeated.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    default=10,
    help="Show so many keys that differ. Default: 10.",
)
@_source_options
@configuration_options
@verbose_option
@click.pass_obj
def verify_(
    session: Session,
    /,
    version: str | None,
    chosen: tuple[str, ...],
    limit: int,
    file: Path | None,
    flags: dict[str, object],
    target: str | None,
    **given: Any,
) -> None:
    """Compare what workers have with VERSION of the snapshot, or with the newest one, and name the keys that differ.

    The workers may run: what was committed between the snapshot and now is read from the changelogs, and taken into account. With
    --state-dir the directories of stopped workers are compared, and not written to. The exit status is 1 when anything differs.

    \b
    millpond state verify --location s3://states/delays --application-id delays --url http://localhost:8080
    millpond state verify --app app:build --state-dir /var/lib/millpond/delays/w0
    """  # noqa: D301 - click's mark for lines that are not wrapped
    required = ("application.id", "bootstrap.servers")
    options = _Given.of(file, flags, target, required, **given)
    snapshot = options.snapshot(version)
    known = {each.store: each.layout for each in snapshot.manifest.stores}
    for name in chosen:
        if name not in known:
            there = ", ".join(f"'{each}'" for each in sorted(known))
            raise StateError(f"snapshot {snapshot.name} has no store '{name}'; it has {there}.")
    with ExitStack() as stack:
        sources: list[RowSource] = (
            list(options.workers(stack)) if options.directory is None else options.directories(stack)
        )
        changelogs = Changelogs(options.config)
        stack.callback(changelogs.close)
        found: list[Checked] = []
        total = len({(held.store, held.partition) for held in snapshot.held()})
        with _progress(session, "comparing", "store partitions") as advance:
            for checked in verify(
                snapshot,
                sources,
                changelogs,
                stores=chosen or None,
                examples=limit,
                now_ms=lambda: int(time.time() * 1000),
            ):
                found.append(checked)
                advance(len({(each.held.store, each.held.partition) for each in found}), total)
    show_checked(session, found, known, options.stores, limit)
    conclude(session, snapshot.name, found)


@command.command("export", short_help="Write a store into a Parquet file.")
@click.argument("store")
@click.option(
    "--to", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", required=True, help="The file."
)
@click.option("--snapshot", "version", metavar="VERSION", help="A version of the snapshot. Default: the newest one.")
@_source_options
@configuration_options
@verbose_option
@click.pass_obj
def export(
    session: Session,
    /,
    store: str,
    path: Path,
    version: str | None,
    file: Path | None,
    flags: dict[str, object],
    target: str | None,
    **given: Any,
) -> None:
    """Write all rows of STORE into a Parquet file: from a snapshot, from running workers, or from stopped ones.

    With --app, keys and values are decoded, Structs into nested columns; without, they are bytes.

    \b
    millpond state export counts --app app:build --to counts.parquet
    millpond state export counts --app app:build --url http://localhost:8080 --to counts.parquet
    """  # noqa: D301
    require_pyarrow()
    options = _Given.of(file, flags, target, **given)
    with ExitStack() as stack:
        opened = _opened(stack, options, store, version)
        logged = opened.logged
        columns = StoreColumns(opened.layout) if logged is None else columns_of(logged.builder, logged.topic)
        rows = all_rows(opened.places, store)
        with _progress(session, "writing", "rows") as advance:
            done = 0

            def count(more: int) -> None:
                nonlocal done
                done += more
                advance(done, opened.total)

            exported = export_parquet(rows, columns, path, count)
    session.out.print(
        f"{escape(str(path))}: {exported.rows:,} rows of store {escape(store)} from {escape(opened.where)}, {decimal(exported.bytes)}."
    )
    for what, failed in (("keys", exported.undecoded_keys), ("values", exported.undecoded_values)):
        if failed:
            column = f"{what.removesuffix('s')}_raw"
            session.err.print(f"{failed:,} {what} could not be decoded: their bytes are in the column '{column}'.")


@command.command("show", short_help="Show rows of a store.")
@click.argument("store")
@click.option(
    "-n", "--limit", type=click.IntRange(1), metavar="COUNT", help=f"Rows; default for tables: {_SHOWN_ROWS}."
)
@click.option("--snapshot", "version", metavar="VERSION", help="A version of the snapshot. Default: the newest one.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="json: one object per line."
)
@_source_options
@configuration_options
@verbose_option
@click.pass_obj
def show(
    session: Session,
    /,
    store: str,
    limit: int | None,
    version: str | None,
    output: str,
    file: Path | None,
    flags: dict[str, object],
    target: str | None,
    **given: Any,
) -> None:
    """Show rows of STORE, by partition and key: from a snapshot, from running workers, or from stopped ones."""
    options = _Given.of(file, flags, target, **given)
    with ExitStack() as stack:
        opened = _opened(stack, options, store, version)
        decode = RowDecoder(opened.layout, opened.logged).row
        rows = (decode(*row) for row in all_rows(opened.places, store))
        if output == "json":
            _Json(session.out).rows(rows, limit)
        else:
            shown = limit or _SHOWN_ROWS
            _Tables(session.out).rows(islice(rows, shown + 1), shown)


class _Opened(NamedTuple):
    """A store that is about to be read."""

    layout: StoreLayout
    logged: LoggedStore | None
    places: dict[int, RowSource]
    total: int
    """Rows, where that is known; else 0."""
    where: str


def _opened(stack: ExitStack, options: _Given, store: str, version: str | None) -> _Opened:
    logged = None if options.stores is None else find_store(options.stores, store)
    if options.directory is None and not options.urls:
        snapshot = options.snapshot(version)
        found = places([snapshot], store)
        there = snapshot.manifest.store(store)
        assert there is not None
        if logged is not None and logged.layout != there.layout:
            raise StateError(
                f"snapshot {snapshot.name} has store '{store}' in another layout than the application: name the application that it "
                "was made of, or leave out --app."
            )
        total = sum(part.rows for part in there.parts)
        return _Opened(there.layout, logged, found, total, f"snapshot {snapshot.name}")
    if version is not None:
        raise click.UsageError("--snapshot does not go with --url or --state-dir.")
    if logged is None:
        raise click.UsageError(
            "with --url or --state-dir, name the application with --app: it knows what rows look like."
        )
    if options.directory is not None:
        return _Opened(
            logged.layout, logged, places(options.directories(stack), store), 0, f"the directory {options.directory}"
        )
    workers = options.workers(stack)
    partitions = workers[0].stores.stores.get(store)
    return _Opened(logged.layout, logged, places(workers, store, partitions), 0, f"{len(workers)} running workers")


@contextmanager
def _progress(session: Session, what: str, of: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what shows how far the work is, on a terminal."""
    if not session.live:
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    with Progress(*columns, console=session.err, transient=True) as progress:
        bar = progress.add_task(what, total=None, said="")

        def advance(done: int, total: int) -> None:
            said = f"{done:,} of {total:,} {of}" if total else f"{done:,} {of}"
            progress.update(bar, completed=done, total=total or None, said=said)

        yield advance
