"""The worker to which a query of the coordinator's address is redirected. Pure."""

from __future__ import annotations

from millpond.protocol import Role, TaskState, View

__all__ = ("query_address",)


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
