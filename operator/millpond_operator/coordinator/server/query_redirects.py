"""Redirects of queries from the coordinator's address to a worker."""

from __future__ import annotations

import msgspec
from aiohttp import web

from millpond.protocol import Role, TaskState, View

__all__ = ("PATHS", "redirect")

PATHS = "/{query:(?:stores|metadata)(?:/(?s:.*))?}"
"""The paths of queries, for the router."""


def redirect(request: web.Request, view: View, turn: int) -> web.Response:
    """Return the redirect of a query to a live worker, with path and parameters as they were; 503 without a worker.

    Args:
        request: the query.
        view: the assignment of the application.
        turn: which of the workers, see `query_address`.
    """
    address = query_address(view, turn)
    if address is None:
        message = f"no worker of '{view.application}' answers queries now: ask again, or check 'http.port'."
        failure = {"error": {"reason": "NOT_PRESENT", "message": message, "partitions": []}}
        return web.Response(body=msgspec.json.encode(failure), content_type="application/json", status=503)
    _, _, query = request.rel_url.raw_path.partition("/v1/")
    if "application" in request.match_info:
        query = query.split("/", 2)[2]
    if request.rel_url.raw_query_string:
        query += f"?{request.rel_url.raw_query_string}"
    headers = {"Location": f"{address}/v1/{query}", "Cache-Control": "no-store"}
    return web.Response(status=307, headers=headers)


def query_address(view: View, turn: int) -> str | None:
    """Return the base URL of a live worker that answers queries; None if there is none.

    Each worker answers for the whole application, so it may be any of them. Workers that process tasks come before
    those that have none yet.

    Args:
        view: the assignment of the application.
        turn: which of the workers: consecutive turns give different ones, so that a client that asks again, since a
            worker has just died, gets another one.
    """
    found = [each for each in view.members if each.alive and (each.address or "").startswith(("http://", "https://"))]
    working = [
        each
        for each in found
        if any(task.role is Role.ACTIVE and task.state is TaskState.RUNNING for task in each.tasks.values())
    ]
    chosen = working or found
    if not chosen:
        return None
    return (chosen[turn % len(chosen)].address or "").rstrip("/")
