"""`python -m millpond_operator.coordinator`: a coordinator without Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import signal
import ssl
import sys
from datetime import timedelta
from pathlib import Path

import click

from millpond.durations import Duration
from millpond.errors import ConfigError, MillpondError
from millpond.json_logs import FORMATS, log_as_json, logs_json
from millpond_operator.assignment import AssignmentOptions
from millpond_operator.coordinator.engine.options import EngineOptions
from millpond_operator.coordinator.server.auth import TokenFile
from millpond_operator.coordinator.server.server import CoordinatorServer
from millpond_operator.coordinator.server.store import FileStore

__all__ = ("main",)

log = logging.getLogger("millpond_operator.coordinator")


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    try:
        duration = Duration.parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from error
    if not duration:
        raise click.BadParameter(f"'{value}' must be 1ms or more.")
    return duration


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--application", "applications", multiple=True, required=True, help="Application id; repeatable.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, show_default=True, help="Port to listen on; 0 for any free one.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="File for the assignment, or a directory if there are several applications. Without it, a restarted "
    "coordinator learns everything from the workers.",
)
@click.option(
    "--term", type=int, help="Term, greater than that of every earlier coordinator. Default: the stored one + 1."
)
@click.option(
    "--token-file", type=click.Path(path_type=Path), help="File with a token per line: TOKEN worker=ID, or TOKEN admin."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Private key of the certificate, PEM.")
@click.option("--standby-replicas", default=0, show_default=True, help="num.standby.replicas")
@click.option("--max-warmup-replicas", default=2, show_default=True, help="max.warmup.replicas")
@click.option(
    "--acceptable-recovery-lag", default=10_000, show_default=True, help="acceptable.recovery.lag, in records"
)
@click.option("--rack-aware-tags", default="", help="rack.aware.assignment.tags, separated by commas")
@click.option(
    "--session-timeout",
    callback=_duration,
    default="6s",
    show_default=True,
    help="A worker without a heartbeat for this long counts as dead.",
)
@click.option(
    "--gathering",
    callback=_duration,
    default="500ms",
    show_default=True,
    help="How long a new application waits for workers before its first assignment.",
)
@click.option("--log-level", default="INFO", show_default=True)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Format of logs: text, or json with one line of JSON for each log record.",
)
def main(  # noqa: PLR0913 - the options of the command line
    applications: tuple[str, ...],
    host: str,
    port: int,
    store: Path | None,
    term: int | None,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    standby_replicas: int,
    max_warmup_replicas: int,
    acceptable_recovery_lag: int,
    rack_aware_tags: str,
    session_timeout: timedelta,
    gathering: timedelta,
    log_level: str,
    log_format: str,
) -> None:
    """Coordinate the workers of one or more applications, without Kubernetes.

    Prints one line of JSON with the URL when it listens. Exits with status 1 when a worker knows a later coordinator.
    """
    if log_format == "json":
        log_as_json(log_level.upper())
    else:
        logging.basicConfig(level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    options = EngineOptions(
        assignment=AssignmentOptions(
            standby_replicas,
            max_warmup_replicas,
            acceptable_recovery_lag,
            tuple(tag for tag in rack_aware_tags.split(",") if tag),
        ),
        session_timeout=session_timeout,
        gathering=gathering,
    )
    _allow_many_connections()
    # A large assignment is computed in a thread. If heartbeats interrupted it every 5 ms it would take many times
    # longer on a busy machine, and a dead worker's tasks wait for it; heartbeats tolerate 50 ms.
    sys.setswitchinterval(0.05)
    try:
        context = _tls(tls_cert, tls_key)
        authenticator = TokenFile(token_file) if token_file is not None else None
        stores = {each: _store(store, each, alone=len(applications) == 1) for each in applications}
        asyncio.run(_serve(stores, options, term, authenticator, host, port, context))
    except ConfigError as error:
        _tell(error)
        sys.exit(2)
    except (MillpondError, OSError) as error:
        _tell(error)
        sys.exit(1)


def _tell(error: Exception) -> None:
    """Write why the coordinator ends, in the format of the logs."""
    if logs_json():
        log.critical("%s", error, exc_info=error)
    else:
        click.echo(f"millpond: {error}", err=True)


async def _serve(  # noqa: PLR0913 - the options of the command line
    stores: dict[str, FileStore | None],
    options: EngineOptions,
    term: int | None,
    authenticator: TokenFile | None,
    host: str,
    port: int,
    context: ssl.SSLContext | None,
) -> None:
    stopped = asyncio.Event()
    superseded: list[str] = []

    def on_superseded(_namespace: str, application: str) -> None:
        superseded.append(application)
        stopped.set()

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopped.set)
    coordinator = CoordinatorServer(authenticator=authenticator, on_superseded=on_superseded)
    try:
        for application, store in stores.items():
            await coordinator.add(application, options, store, term)
        await coordinator.start(host, port, context)
        click.echo(json.dumps({"url": coordinator.url, "coordinator": coordinator.id}))
        await stopped.wait()
    finally:
        await coordinator.stop()
    if superseded:
        raise MillpondError(
            f"Another coordinator leads '{superseded[0]}': stop that one. If there is none and the store was lost, "
            "start this one with a greater --term."
        )


def _allow_many_connections() -> None:
    """Raise the limit of open files: each worker holds one or two connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # macOS has a lower, hidden limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _store(path: Path | None, application: str, *, alone: bool) -> FileStore | None:
    if path is None:
        return None
    return FileStore(path if alone and not path.is_dir() else path / f"{application}.json")


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("TLS needs a certificate and its key: pass both --tls-cert and --tls-key.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"Cannot load the certificate '{certificate}' with the key '{key}': {error}. Pass PEM files."
        ) from error
    return context


if __name__ == "__main__":
    main()
