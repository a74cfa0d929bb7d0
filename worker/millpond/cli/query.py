"""`millpond query`: what a running application's stores hold."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from millpond.errors import MillpondError
from millpond.protocol import View
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.failures import Failure
from millpond.queries.parameters import duration_ms
from millpond.queries.transport import Transport

from .options import verbose_option
from .session import Session

__all__ = ("command",)

#: A table shows so many rows unless told otherwise: all of them have to be there before their columns are known.
TABLE_ROWS = 100
_MOST_COLUMNS = 8
_COORDINATOR_TIMEOUT_S = 10.0


@click.command("query", short_help="Ask a running application for what its stores hold.")
@click.argument("store", required=False)
@click.argument("key", required=False)
@click.option("--url", "urls", metavar="URL", multiple=True, help="A worker, as http://host:port; may be repeated.")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="With the token that workers want.")
@click.option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Certificates of workers to trust.")
@click.option("--coordinator-url", metavar="URL", help="Instead of --url: ask the coordinator who the workers are.")
@click.option("--application-id", metavar="NAME", help="With --coordinator-url: the application.")
@click.option("--coordinator-token-file", type=click.Path(path_type=Path), metavar="FILE", help="With a bearer token.")
@click.option("--coordinator-ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Certificates to trust.")
@click.option("--low", metavar="KEY", help="The smallest key, inclusive.")
@click.option("--high", metavar="KEY", help="The largest key, inclusive.")
@click.option("--prefix", metavar="PREFIX", help="What keys begin with.")
@click.option("--from", "first", metavar="TIME", help="The first window start: 2026-01-31T12:00:00Z, or epoch ms.")
@click.option("--to", "last", metavar="TIME", help="The last window start, inclusive.")
@click.option("--where", is_flag=True, help="Show which workers have the key, or the store's partitions.")
@click.option("--reverse", is_flag=True, help="In descending order.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="COUNT", help=f"Rows; default for tables: {TABLE_ROWS}.")
@click.option("--max-staleness", metavar="DURATION", help="Let a standby answer that was up to date so long ago.")
@click.option(
    "--max-lag", type=click.IntRange(0), metavar="RECORDS", help="Let a standby answer that is so far behind."
)
@click.option("--position", metavar="T-P:OFFSET,…", help="Wait until the input below these offsets is processed.")
@click.option("--uncommitted", is_flag=True, help="Also what is not committed yet.")
@click.option("--partition", type=click.IntRange(0), metavar="NUMBER", help="Look into this partition only.")
@click.option("--timeout", metavar="DURATION", default="10s", help="How long to wait for an owner. Default: 10s.")
@click.option("--key-format", type=click.Choice(["text", "json", "base64"]), default="text", help="Of keys given here.")
@click.option("--raw", is_flag=True, help="Keys and values as base64 of their bytes.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", help="json: one object per line."
)
@verbose_option
@click.pass_obj
def command(session: Session, /, store: str | None, key: str | None, output: str, **given: Any) -> None:
    """Show the value of KEY in STORE, or rows of STORE, or without either the stores there are.

    Any worker answers for the whole application. What is shown is committed, unless --uncommitted says otherwise.
    Keys are text where the store's keys are text, and JSON elsewhere.

    \b
    millpond query --url http://localhost:8080
    millpond query --url http://localhost:8080 counts JFK
    millpond query --url http://localhost:8080 counts --low A --high C -n 10
    millpond query --url http://localhost:8080 delays JFK --from 2013-01-01 --to 2013-01-02
    """  # noqa: D301 - click's mark for lines that are not wrapped
    files = {name: given.pop(name) for name in ("token_file", "ca_file")}
    transport = Transport(_urls(**{name: given.pop(name) for name in _FINDING}), **files)
    shown = _Json(session.out) if output == "json" else _Tables(session.out)
    try:
        timeout_s = duration_ms("--timeout", given["timeout"]) / 1000
        if store is None:
            shown.stores(transport.one(("stores",), {}, timeout_s)["stores"])
        elif given.pop("where"):
            query = {"key_format": given["key_format"]}
            found = (
                transport.one(("metadata", store), {}, timeout_s)["partitions"]
                if key is None
                else [transport.one(("metadata", store, key), query, timeout_s)]
            )
            shown.places(found)
        else:
            _ask(transport, store, key, shown, given, timeout_s)
    except QueryFailed as failed:
        if failed.reason is FailureReason.BAD_REQUEST:
            raise click.UsageError(str(failed)) from failed
        raise
    finally:
        transport.close()


_FINDING = ("urls", "coordinator_url", "application_id", "coordinator_token_file", "coordinator_ca_file")


def _urls(
    urls: tuple[str, ...],
    coordinator_url: str | None,
    application_id: str | None,
    coordinator_token_file: Path | None,
    coordinator_ca_file: Path | None,
) -> tuple[str, ...]:
    """Where the workers are."""
    if urls:
        return urls
    if coordinator_url is None or application_id is None:
        raise click.UsageError("say whom to ask: --url URL, or --coordinator-url URL and --application-id NAME.")
    if not coordinator_url.startswith(("http://", "https://")):
        raise click.UsageError(f"--coordinator-url: '{coordinator_url}' should look like http://localhost:7070.")
    path = f"/v1/applications/{quote(application_id, safe='')}/assignment"
    request = urllib.request.Request(coordinator_url.rstrip("/") + path)  # noqa: S310 - http, as checked
    try:
        if coordinator_token_file is not None:
            request.add_header("Authorization", f"Bearer {coordinator_token_file.read_text().strip()}")
        context = ssl.create_default_context(cafile=coordinator_ca_file) if coordinator_ca_file else None
        with urllib.request.urlopen(request, timeout=_COORDINATOR_TIMEOUT_S, context=context) as answer:  # noqa: S310
            view = msgspec.json.decode(answer.read(), type=View)
    except (OSError, msgspec.DecodeError) as error:
        raise MillpondError(
            f"the coordinator at {coordinator_url} does not say who the workers of '{application_id}' are ({error}): is "
            "it the right URL, application and token?"
        ) from error
    found = tuple(each.address for each in view.members if each.alive and each.address)
    if not found:
        raise MillpondError(f"no worker of '{application_id}' can be reached over HTTP: set their 'http.port'.")
    return found


def _ask(
    transport: Transport, store: str, key: str | None, shown: _Json | _Tables, given: dict[str, Any], timeout_s: float
) -> None:
    info = transport.one(("stores", store), {}, timeout_s)
    query = {"timeout": given["timeout"], "key_format": given["key_format"]}
    for name in ("max_staleness", "max_lag", "position", "partition"):
        if given[name] is not None:
            query[name] = str(given[name])
    if given["uncommitted"]:
        query["isolation"] = "read_uncommitted"
    if given["raw"]:
        query["format"] = "base64"
    windows = info["kind"] == "window"
    if windows:
        _refuse(given, "a window store", "prefix")
    else:
        _refuse(given, "a key-value store", "first", "last")
    if key is not None and not windows:
        _refuse(given, "a key", "low", "high", "prefix", "limit", "reverse")
        shown.answer(key, transport.one(("stores", store, "keys", key), query, timeout_s))
        return
    for option, name in (("low", "low"), ("high", "high"), ("prefix", "prefix"), ("first", "from"), ("last", "to")):
        if given[option] is not None:
            query[name] = given[option]
    if key is not None:
        _refuse(given, "a key", "low", "high", "prefix")
        path: tuple[str, ...] = ("windows", key)
    elif given["prefix"] is not None:
        _refuse(given, "--prefix", "low", "high")
        path = ("prefix",)
    else:
        path = ("windows",) if windows else ("range",)
    if given["reverse"]:
        query["reverse"] = "true"
    limit = given["limit"] or shown.limit
    if limit is not None:
        # One more tells whether there are more.
        query["limit"] = str(limit + 1)
    shown.rows(_complete(transport.lines(("stores", store, *path), query, timeout_s)), limit)


def _refuse(given: dict[str, Any], with_: str, *options: str) -> None:
    names = {"first": "from", "last": "to"}
    wrong = next((each for each in options if given[each]), None)
    if wrong is not None:
        raise click.UsageError(f"--{names.get(wrong, wrong)} does not go with {with_}.")


def _complete(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """The rows of an answer; raises QueryFailed when they are not all."""
    count = 0
    for line in lines:
        content: dict[str, Any] = msgspec.json.decode(line)
        if "complete" not in content:
            count += 1
            yield content
        elif content["complete"]:
            return
        else:
            raise QueryFailed.of(msgspec.convert(content["error"], Failure))
    raise QueryFailed(FailureReason.NOT_PRESENT, f"the answer was cut off after {count} rows: ask again.")


class _Json:
    """One object per line, as it comes."""

    limit: int | None = None

    def __init__(self, _console: Console) -> None: ...

    def stores(self, stores: list[dict[str, Any]]) -> None:
        self._lines(stores)

    def places(self, places: list[dict[str, Any]]) -> None:
        self._lines(places)

    def answer(self, _key: str, answer: dict[str, Any]) -> None:
        self._lines([answer])

    def rows(self, rows: Iterator[dict[str, Any]], limit: int | None) -> None:
        for number, row in enumerate(rows):
            if limit is None or number < limit:
                self._lines([row])

    def _lines(self, objects: list[dict[str, Any]]) -> None:
        for each in objects:
            click.echo(msgspec.json.encode(each))


class _Tables:
    """For people."""

    limit: int | None = TABLE_ROWS

    def __init__(self, console: Console) -> None:
        self._console = console

    def stores(self, stores: list[dict[str, Any]]) -> None:
        table = _table("store", "kind", "keys", "values", partitions="right")
        for each in stores:
            kind = each["kind"].replace("_", "-")
            if each["kind"] == "window":
                kind += f", {_span(each['window_size_ms'])}"
            where = "everywhere" if each["global"] else str(each["partitions"])
            table.add_row(Text(each["name"], style="bold"), kind, Text(each["key"]), Text(each["value"]), where)
        self._console.print(table if stores else "The application has no store to query.")

    def places(self, places: list[dict[str, Any]]) -> None:
        table = _table("partition", "task", "active", "standbys")
        for each in places:
            standbys = ", ".join(_worker(one) for one in each["standbys"]) or "-"
            active = _worker(each["active"]) if each["active"] else "nobody"
            table.add_row(str(each["partition"]), each["task"] or "global", Text(active), Text(standbys))
        self._console.print(table)

    def answer(self, key: str, answer: dict[str, Any]) -> None:
        if not answer["found"]:
            self._console.print(f"'{key}' has no value.", markup=False)
            return
        self.rows(iter([{name: answer[name] for name in ("key", "value", "timestamp") if name in answer}]), None)
        notes = [f"partition {answer['partition']} at {', '.join(answer['workers'])}"]
        if answer["staleness_ms"] is not None:
            notes.append(f"a copy, {answer['staleness_ms']} ms old")
        notes += [f"{name} up to {offset}" for name, offset in sorted(answer["position"].items())]
        self._console.print(Text(" . ".join(notes), style="dim"))

    def rows(self, rows: Iterator[dict[str, Any]], limit: int | None) -> None:
        found = list(rows)
        more = limit is not None and len(found) > limit
        found = found[:limit]
        if not found:
            self._console.print("There are no rows.")
            return
        columns = _columns([row["value"] for row in found])
        names = ["key", *(["from", "to"] if "window" in found[0] else []), *columns]
        table = _table(*names, *(["timestamp"] if "timestamp" in found[0] else []))
        for column, name in zip(table.columns[len(names) - len(columns) :], columns, strict=False):
            if all(isinstance(_cell(row["value"], name), int | float | None) for row in found):
                column.justify = "right"
        for row in found:
            cells = [Text(_shown(row["key"]), style="bold")]
            if "window" in row:
                cells += [Text(_time(row["window"][end])) for end in ("start", "end")]
            cells += [Text(_shown(_cell(row["value"], name))) for name in columns]
            if "timestamp" in row:
                cells.append(Text(_time(row["timestamp"]), style="dim"))
            table.add_row(*cells)
        self._console.print(table)
        if more:
            self._console.print(Text("… and more: see --limit, or --output json for all", style="dim"))


def _table(*names: str, **justified: Any) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    for name, justify in justified.items():
        table.add_column(name, justify=justify)
    return table


def _columns(values: list[Any]) -> list[str]:
    """The fields of the values where all are objects with few of them; else one column."""
    if not all(isinstance(value, dict) for value in values):
        return ["value"]
    names = list(dict.fromkeys(name for value in values for name in value))
    return names if 0 < len(names) <= _MOST_COLUMNS else ["value"]


def _cell(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) and name != "value" else value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if value is None else msgspec.json.encode(value).decode()


def _worker(named: dict[str, Any]) -> str:
    return f"{named['worker']} {named['address']}" if named["address"] else str(named["worker"])


def _time(ms: int) -> str:
    try:
        text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
        return text.removesuffix("+00:00").removesuffix(".000")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def _span(ms: int) -> str:
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
