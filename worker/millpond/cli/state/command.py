"""`millpond state`: verify stores against a snapshot, export them, show them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from millpond.cli.options import configuration_options, output_options, verbose_option
from millpond.cli.query.output import JsonOutput, TableOutput
from millpond.cli.session import Session
from millpond.errors import StateError
from millpond.inspection.decoding import RowDecoder
from millpond.inspection.exporting import export_parquet, require_pyarrow
from millpond.inspection.reading import all_rows
from millpond.inspection.sources import RowSource
from millpond.inspection.tails import Changelogs
from millpond.inspection.verifying import Checked, verify
from millpond.snapshots.store_columns import StoreColumns, columns_of

from .sources import Sources, open_store, source_options
from .verify_report import conclude, show_checked

__all__ = ("command",)

_SHOWN_ROWS = 20


@click.group("state", short_help="Inspect state: compare it with a snapshot, export it, show it.")
def command() -> None:
    """Inspect an application's state. The application may run, and nothing is changed."""


@command.command("verify", short_help="Compare the stores of workers with a snapshot.")
@click.argument("version", required=False)
@click.option("--store", "chosen", metavar="STORE", multiple=True, help="Compare this store only; may be repeated.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    default=10,
    help="Show at most COUNT keys that differ. Default: 10.",
)
@source_options
@configuration_options
@verbose_option
@click.pass_obj
def verify_(  # noqa: PLR0913 - one parameter per option
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
    """Compare the stores of workers with VERSION of the snapshot, or with the newest one, and show keys that differ.

    The workers may run: what was committed since the snapshot is read from the changelogs, and taken into account. With
    --state-dir the directories of stopped workers are compared, and not changed. The exit status is 1 if a key differs.

    \b
    millpond state verify --location s3://states/delays --application-id delays --url http://localhost:8080
    millpond state verify --app app:build --state-dir /var/lib/millpond/delays/w0
    """  # noqa: D301 - click's mark for lines that are not wrapped
    required = ("application.id", "bootstrap.servers")
    sources = Sources.of(file, flags, target, required, **given)
    snapshot = sources.snapshot(version)
    known = {each.store: each.layout for each in snapshot.manifest.stores}
    for name in chosen:
        if name not in known:
            existing = ", ".join(f"'{each}'" for each in sorted(known))
            raise StateError(f"snapshot {snapshot.name} has no store '{name}'; it has {existing}.")
    with ExitStack() as stack:
        compared: list[RowSource] = (
            list(sources.workers(stack)) if sources.directory is None else sources.directories(stack)
        )
        changelogs = Changelogs(sources.config)
        stack.callback(changelogs.close)
        found: list[Checked] = []
        total = len({(held.store, held.partition) for held in snapshot.held()})
        with _progress(session, "comparing", "store partitions") as advance:
            for checked in verify(
                snapshot,
                compared,
                changelogs,
                stores=chosen or None,
                examples=limit,
                now_ms=lambda: int(time.time() * 1000),
            ):
                found.append(checked)
                advance(len({(each.held.store, each.held.partition) for each in found}), total)
    show_checked(session, found, known, sources.stores, limit)
    conclude(session, snapshot.name, found)


@command.command("export", short_help="Write a store into a Parquet file.")
@click.argument("store")
@click.option(
    "--to", "path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", required=True, help="The file."
)
@click.option("--snapshot", "version", metavar="VERSION", help="A version of the snapshot. Default: the newest one.")
@source_options
@configuration_options
@verbose_option
@click.pass_obj
def export(  # noqa: PLR0913 - one parameter per option
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
    """Write all rows of STORE into a Parquet file: from a snapshot, from running workers, or from stopped workers.

    With --app, keys and values are decoded, Structs into nested columns; without it, they are bytes.

    \b
    millpond state export counts --app app:build --to counts.parquet
    millpond state export counts --app app:build --url http://localhost:8080 --to counts.parquet
    """  # noqa: D301
    require_pyarrow()
    sources = Sources.of(file, flags, target, **given)
    with ExitStack() as stack:
        opened = open_store(stack, sources, store, version)
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
        f"{escape(str(path))}: {exported.rows:,} rows of store {escape(store)} from {escape(opened.source)}, "
        f"{decimal(exported.bytes)}."
    )
    for what, failed in (("keys", exported.undecoded_keys), ("values", exported.undecoded_values)):
        if failed:
            column = f"{what.removesuffix('s')}_raw"
            session.err.print(f"{failed:,} {what} could not be decoded; their bytes are in the column '{column}'.")


@command.command("show", short_help="Show rows of a store.")
@click.argument("store")
@click.option(
    "-n", "--limit", type=click.IntRange(1), metavar="COUNT", help=f"Rows; default for tables: {_SHOWN_ROWS}."
)
@click.option("--snapshot", "version", metavar="VERSION", help="A version of the snapshot. Default: the newest one.")
@output_options
@source_options
@configuration_options
@verbose_option
@click.pass_obj
def show(  # noqa: PLR0913 - one parameter per option
    session: Session,
    /,
    store: str,
    limit: int | None,
    version: str | None,
    file: Path | None,
    flags: dict[str, object],
    target: str | None,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Show rows of STORE, by partition and key: from a snapshot, from running workers, or from stopped workers."""
    sources = Sources.of(file, flags, target, **given)
    with ExitStack() as stack:
        opened = open_store(stack, sources, store, version)
        decoder = RowDecoder(opened.layout, opened.logged)
        rows = (decoder.row(*row) for row in all_rows(opened.places, store))
        if as_json:
            JsonOutput(session.out).rows(rows, limit)
        else:
            shown = limit or _SHOWN_ROWS
            TableOutput(session.out).rows(islice(rows, shown + 1), shown)
    if decoder.no_registry:
        session.err.print(
            f"{decoder.no_registry} Keys and values that need it are shown as hexadecimal text.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip
    if decoder.undecoded:
        session.err.print(
            f"Some keys or values are shown as hexadecimal text. The first: {decoder.undecoded.removesuffix('.')}.",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip


@contextmanager
def _progress(session: Session, what: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that shows progress on a terminal; a total of 0 is unknown."""
    if not session.live:
        yield lambda _done, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"), TimeElapsedColumn())
    with Progress(*columns, console=session.err, transient=True) as progress:
        bar = progress.add_task(what, total=None, amount="")

        def advance(done: int, total: int) -> None:
            amount = f"{done:,} of {total:,} {unit}" if total else f"{done:,} {unit}"
            progress.update(bar, completed=done, total=total or None, amount=amount)

        yield advance
