"""`millpond query`: read the stores of a running application."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from millpond.cli.cluster.options import Where, cluster_options
from millpond.cli.options import output_options, verbose_option
from millpond.cli.session import Session
from millpond.queries import FailureReason, QueryFailed
from millpond.queries.failures import Failure
from millpond.queries.parameters import duration_ms
from millpond.queries.transport import Transport

from .output import TABLE_ROWS, JsonOutput, TableOutput
from .pods import worker_pods
from .workers import worker_urls

__all__ = ("command",)


@click.command("query", short_help="Query the stores of a running application.")
@click.argument("store", required=False)
@click.argument("key", required=False)
@click.option("--url", "urls", metavar="URL", multiple=True, help="A worker, as http://host:port; may be repeated.")
@click.option("--session", metavar="NAME", help="Without --url: the session of `millpond dev`, if several run.")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE", help="The token for workers.")
@click.option("--ca-file", type=click.Path(path_type=Path), metavar="FILE", help="CA certificates for workers.")
@click.option("--coordinator-url", metavar="URL", help="Instead of --url: ask the coordinator for the workers.")
@click.option(
    "--application-id", metavar="NAME", help="The application: with --coordinator-url, or that of the session."
)
@click.option(
    "--coordinator-token-file", type=click.Path(path_type=Path), metavar="FILE", help="The token for the coordinator."
)
@click.option("--coordinator-ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Its CA certificates.")
@cluster_options
@click.option("--low", metavar="KEY", help="The smallest key, inclusive.")
@click.option("--high", metavar="KEY", help="The largest key, inclusive.")
@click.option("--prefix", metavar="PREFIX", help="The prefix of the keys.")
@click.option(
    "--from", "first", metavar="TIME", help="The first window start, or session end: 2026-01-31T12:00:00Z, or epoch ms."
)
@click.option("--to", "last", metavar="TIME", help="The last window start, or session start, inclusive.")
@click.option("--where", is_flag=True, help="Show which workers have the key, or the store's partitions.")
@click.option("--reverse", is_flag=True, help="In descending order.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="COUNT", help=f"Rows; default for tables: {TABLE_ROWS}.")
@click.option(
    "--max-staleness", metavar="DURATION", help="Accept an answer of a standby that was caught up at most so long ago."
)
@click.option(
    "--max-lag",
    type=click.IntRange(0),
    metavar="RECORDS",
    help="Accept an answer of a standby with at most so much lag.",
)
@click.option("--position", metavar="T-P:OFFSET,…", help="Wait until all input before these offsets is processed.")
@click.option("--uncommitted", is_flag=True, help="Include rows that are not committed yet.")
@click.option("--partition", type=click.IntRange(0), metavar="NUMBER", help="Read this partition only.")
@click.option("--timeout", metavar="DURATION", default="10s", help="How long to wait for an owner. Default: 10s.")
@click.option(
    "--key-format",
    type=click.Choice(["text", "json", "base64"]),
    default="text",
    help="The format of keys in options and arguments.",
)
@click.option("--raw", is_flag=True, help="Show the bytes of keys and values as base64.")
@output_options
@verbose_option
@click.pass_obj
def command(  # noqa: PLR0913 - one parameter per option
    called: Session,
    /,
    store: str | None,
    key: str | None,
    app: str | None,
    cluster: Where,
    *,
    as_json: bool,
    **given: Any,
) -> None:
    """Show the value of KEY in STORE; without KEY, rows of STORE; without STORE, the application's stores.

    Without options, the workers are those of the session of `millpond dev` on this machine. Any worker answers for the
    whole application. Only committed rows are shown, unless --uncommitted is given.
    Keys are written as text if the store's keys are text, otherwise as JSON.

    Of a versioned store, the versions of KEY are shown, each with the times between which it was valid: timestamp and
    valid_to. The present version has no valid_to; if there is none, the key is deleted.

    \b
    millpond query
    millpond query counts JFK
    millpond query --url http://localhost:8080 counts --low A --high C -n 10
    millpond query --url http://localhost:8080 delays JFK --from 2013-01-01 --to 2013-01-02
    millpond query --url http://localhost:8080 visits alice --from 2013-01-01
    millpond query --kubernetes delays --namespace shop counts JFK
    """  # noqa: D301 - click's mark for lines that are not wrapped
    files = {name: given.pop(name) for name in ("token_file", "ca_file")}
    addresses = {name: given.pop(name) for name in _ADDRESS_OPTIONS}
    shown = JsonOutput(called.out) if as_json else TableOutput(called.out)
    with contextlib.ExitStack() as stack:
        if app is None:
            transport = Transport(worker_urls(**addresses), **files)
        elif any(addresses.values()):
            raise click.UsageError("--kubernetes finds the workers itself: leave out the URLs.")
        else:
            urls, connect = stack.enter_context(worker_pods(app, cluster))
            transport = Transport(urls, connect=connect, **files)
        stack.callback(transport.close)
        _query(transport, store, key, shown, given)


def _query(
    transport: Transport, store: str | None, key: str | None, shown: JsonOutput | TableOutput, given: dict[str, Any]
) -> None:
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
            _show_rows(transport, store, key, shown, given, timeout_s)
    except QueryFailed as failed:
        if failed.reason is FailureReason.BAD_REQUEST:
            raise click.UsageError(str(failed)) from failed
        raise


_ADDRESS_OPTIONS = (
    "session",
    "urls",
    "coordinator_url",
    "application_id",
    "coordinator_token_file",
    "coordinator_ca_file",
)


def _show_rows(  # noqa: PLR0913 - the parts of one command
    transport: Transport,
    store: str,
    key: str | None,
    shown: JsonOutput | TableOutput,
    given: dict[str, Any],
    timeout_s: float,
) -> None:
    info = transport.one(("stores", store), {}, timeout_s)
    windows = info["kind"] in ("window", "session")
    versions = info["kind"] == "versioned"
    if versions and key is None:
        raise click.UsageError(f"'{store}' is a versioned store: give a key, whose versions are shown.")
    windows = windows or versions
    query = _parameters(given)
    if windows:
        _reject(given, f"a {info['kind']} store", "prefix")
    else:
        _reject(given, "a key-value store", "first", "last")
    if key is not None and not windows:
        _reject(given, "a key", "low", "high", "prefix", "limit", "reverse")
        shown.answer(key, transport.one(("stores", store, "keys", key), query, timeout_s))
        return
    query |= _range(given)
    if key is not None:
        _reject(given, "a key", "low", "high", "prefix")
        path: tuple[str, ...] = ("versions" if versions else f"{info['kind']}s", key)
    elif given["prefix"] is not None:
        _reject(given, "--prefix", "low", "high")
        path = ("prefix",)
    else:
        path = (f"{info['kind']}s",) if windows else ("range",)
    limit = given["limit"] or shown.limit
    if limit is not None:
        # One row more shows whether there are more.
        query["limit"] = str(limit + 1)
    shown.rows(_complete(transport.lines(("stores", store, *path), query, timeout_s)), limit)


def _parameters(given: dict[str, Any]) -> dict[str, str]:
    """Return the query parameters that all requests for rows take."""
    query = {"timeout": given["timeout"], "key_format": given["key_format"]}
    for name in ("max_staleness", "max_lag", "position", "partition"):
        if given[name] is not None:
            query[name] = str(given[name])
    if given["uncommitted"]:
        query["isolation"] = "read_uncommitted"
    if given["raw"]:
        query["format"] = "base64"
    return query


def _range(given: dict[str, Any]) -> dict[str, str]:
    """Return the query parameters that limit a range of rows."""
    names = {"low": "low", "high": "high", "prefix": "prefix", "first": "from", "last": "to"}
    query = {name: given[option] for option, name in names.items() if given[option] is not None}
    if given["reverse"]:
        query["reverse"] = "true"
    return query


def _reject(given: dict[str, Any], with_: str, *options: str) -> None:
    names = {"first": "from", "last": "to"}
    wrong = next((each for each in options if given[each]), None)
    if wrong is not None:
        raise click.UsageError(f"--{names.get(wrong, wrong)} cannot be used with {with_}.")


def _complete(lines: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a response.

    Raises:
        QueryFailed: the response has an error after some rows, or was cut off.
    """
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
    raise QueryFailed(FailureReason.NOT_PRESENT, f"the response was cut off after {count} rows: query again.")
