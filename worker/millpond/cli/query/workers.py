"""The query addresses of an application's workers: given by option, from the coordinator, or of a session."""

from __future__ import annotations

import ssl
import urllib.request
from pathlib import Path
from urllib.parse import quote

import click
import msgspec

from millpond.cli.dev.remote import NoSession, Remote, sessions
from millpond.errors import MillpondError
from millpond.protocol import View

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
    if coordinator_url is None and application_id is None:
        return _of_session(session)
    if coordinator_url is None or application_id is None:
        raise click.UsageError("a coordinator needs both --coordinator-url URL and --application-id NAME.")
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
            f"the coordinator at {coordinator_url} does not list the workers of '{application_id}' ({error}): check "
            "the URL, the application and the token."
        ) from error
    found = tuple(each.address for each in view.members if each.alive and each.address)
    if not found:
        raise MillpondError(f"no worker of '{application_id}' serves HTTP: set 'http.port'.")
    return found


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
    status = Remote.find(name).status()
    found = status.queries
    if not found:
        raise NoSession(
            f"no worker of the session of '{status.application}' answers queries yet: try again when it runs, and "
            "check that 'http.port' is not -1."
        )
    return found
