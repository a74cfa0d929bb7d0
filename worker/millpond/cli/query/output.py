"""Output of queries: tables for people, JSON lines for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.cli.cluster.printable import printable
from millpond.times import iso

__all__ = ("TABLE_ROWS", "JsonOutput", "TableOutput")

TABLE_ROWS = 100
"""Rows that a table shows unless `--limit` is given; they are collected before the columns are known."""
_MOST_COLUMNS = 8


class JsonOutput:
    """One JSON object per line, printed as it is read."""

    limit: int | None = None
    """Rows shown unless `--limit` is given; None for all."""

    def __init__(self, _console: Console) -> None: ...

    def stores(self, stores: list[dict[str, Any]]) -> None:
        """Print the stores of an application."""
        self._lines(stores)

    def places(self, places: list[dict[str, Any]]) -> None:
        """Print the workers that hold each partition."""
        self._lines(places)

    def answer(self, _key: str, answer: dict[str, Any]) -> None:
        """Print the value of a key."""
        self._lines([answer])

    def rows(self, rows: Iterator[dict[str, Any]], limit: int | None) -> None:
        """Print at most `limit` rows."""
        for number, row in enumerate(rows):
            if limit is None or number < limit:
                self._lines([row])

    def _lines(self, objects: list[dict[str, Any]]) -> None:
        for each in objects:
            click.echo(msgspec.json.encode(each))


class TableOutput:
    """Tables for people."""

    limit: int | None = TABLE_ROWS
    """Rows shown unless `--limit` is given."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def stores(self, stores: list[dict[str, Any]]) -> None:
        """Print the stores of an application."""
        table = _table("store", "kind", "keys", "values", partitions="right")
        for each in stores:
            kind = each["kind"].replace("_", "-")
            if each["kind"] == "window":
                kind += f", {_span(each['window_size_ms'])}"
            where = "everywhere" if each["global"] else str(each["partitions"])
            table.add_row(Text(each["name"], style="bold"), kind, Text(each["key"]), Text(each["value"]), where)
        self._console.print(table if stores else "The application has no store to query.")

    def places(self, places: list[dict[str, Any]]) -> None:
        """Print the workers that hold each partition."""
        table = _table("partition", "task", "active", "standbys")
        for each in places:
            standbys = ", ".join(_worker(one) for one in each["standbys"]) or "-"
            active = _worker(each["active"]) if each["active"] else "none"
            table.add_row(str(each["partition"]), each["task"] or "global", Text(active), Text(standbys))
        self._console.print(table)

    def answer(self, key: str, answer: dict[str, Any]) -> None:
        """Print the value of a key, with its partition and its position."""
        if not answer["found"]:
            self._console.print(f"'{_shown(key)}' has no value.", markup=False)
            return
        self.rows(iter([{name: answer[name] for name in ("key", "value", "timestamp") if name in answer}]), None)
        notes = [f"partition {answer['partition']} at {', '.join(answer['workers'])}"]
        if answer["staleness_ms"] is not None:
            notes.append(f"a copy, {answer['staleness_ms']} ms old")
        notes += [f"{name} up to {offset}" for name, offset in sorted(answer["position"].items())]
        self._console.print(Text(" . ".join(notes), style="dim"))

    def rows(self, rows: Iterator[dict[str, Any]], limit: int | None) -> None:
        """Print at most `limit` rows, and a note if the store has more."""
        found = list(rows)
        more = limit is not None and len(found) > limit
        found = found[:limit]
        if not found:
            self._console.print("No rows.")
            return
        columns = _columns([row["value"] for row in found])
        names = ["key", *(["from", "to"] if "window" in found[0] else []), *columns]
        times = [name for name in ("timestamp", "valid_to") if name in found[0]]
        table = _table(*names, *times)
        for column, name in zip(table.columns[len(names) - len(columns) :], columns, strict=False):
            if all(isinstance(_cell(row["value"], name), int | float | None) for row in found):
                column.justify = "right"
        for row in found:
            cells = [Text(_shown(row["key"]), style="bold")]
            if "window" in row:
                cells += [Text(_time(row["window"][end])) for end in ("start", "end")]
            cells += [Text(_shown(_cell(row["value"], name))) for name in columns]
            cells += [Text("-" if row[name] is None else _time(row[name]), style="dim") for name in times]
            table.add_row(*cells)
        self._console.print(table)
        if more:
            self._console.print(Text("… and more: see --limit, or --json for all", style="dim"))


def _table(*names: str, **justified: Any) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(Text(_shown(name)), overflow="fold")
    for name, justify in justified.items():
        table.add_column(name, justify=justify)
    return table


def _columns(values: list[Any]) -> list[str]:
    """Return the columns of the values: their fields if all values are objects with few fields, else one column."""
    if not all(isinstance(value, dict) for value in values):
        return ["value"]
    names = list(dict.fromkeys(name for value in values for name in value))
    return names if 0 < len(names) <= _MOST_COLUMNS else ["value"]


def _cell(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) and name != "value" else value


def _shown(value: Any) -> str:
    """Return a key or a value as text that is safe to print: whoever writes records chooses it."""
    if isinstance(value, str):
        return str(printable(value))
    return "-" if value is None else str(printable(msgspec.json.encode(value).decode()))


def _worker(named: dict[str, Any]) -> str:
    return f"{named['worker']} {named['address']}" if named["address"] else str(named["worker"])


def _time(ms: int) -> str:
    return iso(ms, sep=" ").removesuffix("Z").removesuffix(".000")


def _span(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
