"""The query addresses of an application's workers: given by option, from the coordinator, or of a session."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.cli.dev.remote import NoSession, sessions
from millpond.cli.session_broker import session_here
from millpond.queries.members import Coordinator

__all__ = ("worker_urls",)

_COORDINATOR_TIMEOUT_S = 10.0


def worker_urls(  # noqa: PLR0913 - one parameter per option
    urls: tuple[str, ...],
    coordinator_url: str | None,
    application_id: str | None,
    coordinator_token_file: Path | None,
    coordinator_ca_file: Path | None,
    session: str | None = None,
) -> tuple[str, ...]:
    """Return the URLs of workers: those in the options, those that the coordinator lists, or those of a session.

    Raises:
        click.UsageError: the options name neither workers nor a coordinator, and no session runs.
        MillpondError: the coordinator did not list the workers, or no worker serves HTTP.
    """
    if urls:
        return urls
    if coordinator_url is None:
        return _of_session(session or application_id)
    if application_id is None:
        raise click.UsageError("a coordinator needs both --coordinator-url URL and --application-id NAME.")
    coordinator = Coordinator(coordinator_url, application_id, coordinator_token_file, coordinator_ca_file)
    return coordinator.workers(_COORDINATOR_TIMEOUT_S)


def _of_session(name: str | None) -> tuple[str, ...]:
    """Return the URLs of the workers of a session of `millpond dev`.

    Args:
        name: the session's application; None for the only one.
    """
    if name is None and not sessions():
        raise click.UsageError(
            "no worker is known: start `millpond dev` in another terminal, or give --url URL, --coordinator-url URL "
            "with --application-id, or --kubernetes NAME."
        )
    status = session_here(name).status()
    found = status.queries
    if not found:
        raise NoSession(
            f"no worker of the session of '{status.application}' answers queries: start one by "
            "`millpond dev scale 1` if none runs, or try again, and check that 'http.port' is not -1."
        )
    return found
