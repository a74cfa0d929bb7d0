"""`millpond catalog`: the content of an application's stores at past moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from millpond.catalog import indexes
from millpond.catalog.as_of import choose
from millpond.catalog.indexes import CatalogVersion
from millpond.catalog.rows import python_rows
from millpond.errors import ConfigError, SnapshotError
from millpond.serdes.plain import readable_json
from millpond.snapshots.locations import Location, open_location
from millpond.times import iso

from .options import configuration_options, load_config, verbose_option
from .session import Session

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("command",)

_LIMIT = 20
_encode = readable_json(msgspec.json.Encoder(decimal_format="number").encode)
_RAW = frozenset({"key_raw", "value_raw", "value_raw_before", "value_raw_after"})


@click.group("catalog", short_help="Show what stores contained at past moments.")
def command() -> None:
    """Tables of an application's stores at past moments, written by 'millpond snapshot create --catalog'.

    A moment is a version; a time in ISO 8601 (UTC if it has no time zone), which means the newest version that is not
    later; or offsets of changelog partitions, as in 0=120,1=80, which mean the newest version without records at or
    after them.
    """


_json_option = click.option("--json", "as_json", is_flag=True, help="Print rows as JSON objects, one per line.")
_limit_option = click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="COUNT",
    help=f"Show at most COUNT rows. Default: {_LIMIT}; all with --json.",
)
_as_of_option = click.option(
    "--as-of", metavar="MOMENT", help="A version, a time, or offsets. Default: the newest version."
)


@dataclass(frozen=True)
class _Catalog:
    """The tables of an application."""

    location: Location
    credentials_dir: Path | None
    application: str

    def versions(self) -> list[str]:
        """Return all complete versions, newest first."""
        return indexes.versions(self.location, self.application)

    def read(self, version: str) -> CatalogVersion:
        """Return the index of a version."""
        return indexes.read(self.location, self.application, version)

    def choose(self, as_of: str | None, store: str | None = None) -> CatalogVersion:
        """Return the version for a moment; see `as_of.choose`."""
        return choose(self.versions(), self.read, as_of, store)

    def rows(self, version: CatalogVersion, store: str, limit: int | None = None) -> pa.Table:
        """Return rows of a store."""
        from millpond.catalog.tables import read_rows

        table = version.table(store)
        return read_rows(self.location, self.credentials_dir, self.application, version.version, table.store, limit)


def _catalog_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of all catalog commands. The command gets the session and the catalog from these options."""

    @click.option(
        "--location", "uri", metavar="URI", help="The place of the tables. Default: the setting 'catalog.location'."
    )
    @click.option(
        "--credentials-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A directory with files named AWS_ACCESS_KEY_ID and so on, such as a mounted Secret.",
    )
    @configuration_options
    @verbose_option
    @click.pass_obj
    def with_catalog(
        session: Session,
        /,
        uri: str | None,
        credentials_dir: Path | None,
        file: Path | None,
        flags: dict[str, object],
        **arguments: Any,
    ) -> Any:
        config = load_config(file, flags, required=("application.id",), imports=False)
        uri = uri or config.catalog_location
        if uri is None:
            raise ConfigError(
                "the location of the tables is not set: use --location URI, or the setting 'catalog.location'."
            )
        credentials = credentials_dir or config.bootstrap_credentials_dir
        catalog = _Catalog(open_location(uri, credentials), credentials, config.application_id)
        return function(session, catalog, **arguments)

    with_catalog.__doc__ = function.__doc__
    parameters: list[Any] = getattr(function, "__click_params__", [])
    with_catalog.__click_params__ = [*parameters, *with_catalog.__click_params__]  # type: ignore[attr-defined]
    return with_catalog


@command.command("list", short_help="List the versions of an application's tables.")
@_catalog_options
@_json_option
def list_(session: Session, catalog: _Catalog, *, as_json: bool) -> None:
    """List the versions of an application's tables, newest first."""
    found = catalog.versions()
    if not found and not as_json:
        session.out.print(f"No tables of '{escape(catalog.application)}'.")
        return
    table = _columns("version", "as of", "store", "rows", "size", "undecoded keys / values")
    for version in found:
        try:
            index = catalog.read(version)
        except SnapshotError as error:
            session.err.print(f"[dim]{version}: {escape(str(error))}[/]", soft_wrap=True)
            continue
        if as_json:
            click.echo(msgspec.json.encode(index))
            continue
        named, moment = version, _time(index.as_of_ms)
        for each in index.tables:
            undecoded = f"{each.undecoded_keys:,} / {each.undecoded_values:,}"
            table.add_row(named, moment, escape(each.store), f"{each.rows:,}", decimal(each.bytes), undecoded)
            named = moment = ""
    if not as_json:
        session.out.print(table)


@command.command("show", short_help="Show the rows of a store at a moment.")
@click.argument("store")
@_as_of_option
@_limit_option
@_json_option
@_catalog_options
def show(  # noqa: PLR0913 - one parameter per option
    session: Session, catalog: _Catalog, store: str, as_of: str | None, limit: int | None, *, as_json: bool
) -> None:
    """Show the rows of STORE at a moment."""
    _require_libraries()
    version = catalog.choose(as_of, store)
    limit = _LIMIT if limit is None and not as_json else limit
    rows = catalog.rows(version, store, limit)
    if as_json:
        _print_lines(rows)
        return
    _print_rows(session, rows, version.table(store).rows)
    session.out.print(f"[dim]store {escape(store)} as of {_time(version.as_of_ms)}, version {version.version}[/]")


@command.command("diff", short_help="Show which rows of a store differ between two moments.")
@click.argument("store")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@_limit_option
@_json_option
@_catalog_options
def diff(  # noqa: PLR0913 - one parameter per option
    session: Session, catalog: _Catalog, store: str, first: str, second: str, limit: int | None, *, as_json: bool
) -> None:
    """Show which rows of STORE were added, removed or changed between the moments A and B."""
    _require_libraries()
    from millpond.catalog.queries import diff as differences

    before, after = catalog.choose(first, store), catalog.choose(second, store)
    found = differences(catalog.rows(before, store), catalog.rows(after, store))
    _print(session, found, limit, as_json=as_json)
    if not as_json:
        session.out.print(f"[dim]store {escape(store)} from version {before.version} to {after.version}[/]")


@command.command("sql", short_help="Query all stores at a moment with SQL.")
@click.argument("query")
@_as_of_option
@_limit_option
@_json_option
@_catalog_options
def sql(  # noqa: PLR0913 - one parameter per option
    session: Session, catalog: _Catalog, query: str, as_of: str | None, limit: int | None, *, as_json: bool
) -> None:
    """Query the stores at one moment with the SQL of DuckDB: each store is a view with the store's name.

    All stores are of the same moment, so a join sees only rows that were committed together. Quote names with dashes
    or dots.
    """
    _require_libraries()
    from millpond.catalog.queries import select

    version = catalog.choose(as_of)
    stores = [each.store for each in version.tables]
    found = select(query, stores, lambda store: catalog.rows(version, store))
    _print(session, found, limit, as_json=as_json)


def _require_libraries() -> None:
    from millpond.catalog.tables import require_libraries

    require_libraries()


def _print(session: Session, rows: pa.Table, limit: int | None, *, as_json: bool) -> None:
    if as_json:
        _print_lines(rows if limit is None else rows.slice(0, limit))
    else:
        _print_rows(session, rows.slice(0, _LIMIT if limit is None else limit), len(rows))


def _print_lines(rows: pa.Table) -> None:
    for batch in rows.to_batches(max_chunksize=1_000):
        for row in python_rows(batch):
            click.echo(_encode(row))


def _print_rows(session: Session, rows: pa.Table, total: int) -> None:
    """Print rows as a table; columns of undecoded bytes only if they are not empty."""
    names = [name for name in rows.column_names if name not in _RAW or rows[name].null_count < len(rows)]
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(escape(name), overflow="fold")
    for row in python_rows(rows.select(names)):
        table.add_row(*(escape(_cell(row[name])) for name in names))
    session.out.print(table)
    if len(rows) < total:
        session.out.print(f"[dim]{len(rows):,} of {total:,} rows: --limit shows more[/]")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, datetime):
        return value.isoformat(" ").replace("+00:00", "Z")
    return _encode(value).decode().strip('"')


def _columns(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, name in enumerate(names):
        table.add_column(name, no_wrap=number < 2, justify="left" if number < 3 else "right")
    return table


def _time(ms: int) -> str:
    return iso(ms, sep=" ")
