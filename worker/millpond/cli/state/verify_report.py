"""The output of `millpond state verify`: a table, the keys that differ, and a verdict."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from millpond.cli.session import Session
from millpond.errors import StateError
from millpond.inspection.decoding import LoggedStore, RowDecoder
from millpond.inspection.verifying import Checked
from millpond.snapshots.layouts import StoreLayout

__all__ = ("conclude", "show_checked")


def show_checked(
    session: Session,
    found: list[Checked],
    layouts: dict[str, StoreLayout],
    stores: dict[str, LoggedStore] | None,
    limit: int,
) -> None:
    """Print a table of the compared store partitions, and the first keys that differ.

    Args:
        session: the session of the command line, which prints.
        found: the comparisons, by store and partition.
        layouts: the layouts of the snapshot's stores, by name.
        stores: the application's stores by name, which decode rows; None to show bytes.
        limit: the number of keys to show.
    """
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("worker", "store"):
        table.add_column(name, overflow="fold")
    for name in ("partition", "rows", "compared", "differ", "missing", "extra"):
        table.add_column(name, justify="right")
    table.add_column("")
    for each in found:
        role = f" [dim]{each.held.role}[/]" if each.held.role else ""
        head = (escape(each.source or "-") + role, escape(each.held.store), str(each.held.partition))
        comparison = each.comparison
        if comparison is None:
            table.add_row(*head, *[""] * 5, Text(f"not compared: {each.reason}", style="yellow"))
            continue
        counts = [
            f"[bold red]{count:,}[/]" if count else "0"
            for count in (comparison.differ, comparison.missing, comparison.extra)
        ]
        table.add_row(*head, f"{comparison.rows:,}", f"{comparison.compared:,}", *counts, "")
    session.out.print(table)
    left = limit
    for each in found:
        if each.comparison is None:
            continue
        store = None if stores is None else stores.get(each.held.store)
        layout = layouts[each.held.store]
        fits = store is not None and store.layout == layout
        decoder = RowDecoder(layout, store if fits else None)
        for difference in each.comparison.examples[:left]:
            left -= 1
            key, expected = decoder.difference(difference.key, difference.expected)
            key_found, has = decoder.difference(difference.key, difference.found)
            where = f"{each.source}, store {each.held.store}, partition {each.held.partition}"
            session.out.print(f"{where}: key {key or key_found}", markup=False, soft_wrap=True)
            session.out.print(f"  expected {expected}", markup=False, soft_wrap=True)
            session.out.print(f"  found    {has}", markup=False, soft_wrap=True)


def conclude(session: Session, version: str, found: list[Checked]) -> None:
    """Print the verdict of a comparison with a snapshot version.

    Raises:
        StateError: a key differs, or nothing was compared.
    """
    compared = [each.comparison for each in found if each.comparison is not None]
    wrong = sum(each.wrong for each in compared)
    left_out = len(found) - len(compared)
    if wrong:
        raise StateError(
            f"{wrong:,} keys differ from snapshot {version} and the changelogs: stop the worker that differs, delete "
            "its state directory and start it again; or make a new snapshot, if the snapshot is wrong."
        )
    if not compared:
        raise StateError("nothing was compared: the table shows why.")
    more = f" {left_out} store partitions were not compared: the table shows why." if left_out else ""
    session.out.print(
        f"{len(compared)} store partitions with {sum(each.compared for each in compared):,} keys are equal to snapshot "
        f"{version} and the changelogs.{more}"
    )
