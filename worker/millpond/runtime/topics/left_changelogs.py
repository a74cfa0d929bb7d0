"""Tells of changelogs that no store uses any more, when a store with a new name begins empty."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from .plan import Plan

__all__ = ("left_changelogs", "warn_of_left_changelogs")

log: logging.Logger = logging.getLogger(__name__)

_SUFFIX = "-changelog"


def left_changelogs(plan: Plan, existing: Mapping[str, int], application_id: str) -> tuple[list[str], list[str]]:
    """Return the changelogs that are created now, and existing ones of this application that no store uses.

    Args:
        plan: the topics of the application.
        existing: the partition count of every topic in the cluster.
        application_id: prefix of internal topics.
    """
    planned = {each.name for each in plan.internal if each.name.endswith(_SUFFIX)}
    prefix = f"{application_id}-"
    left = {name for name in existing if name.startswith(prefix) and name.endswith(_SUFFIX)} - planned
    return sorted(planned - existing.keys()), sorted(left)


def warn_of_left_changelogs(plan: Plan, existing: Mapping[str, int], application_id: str) -> None:
    """Log new stores together with changelogs that no store uses: a store may have been renamed."""
    new, left = left_changelogs(plan, existing, application_id)
    if not new or not left:
        return
    stores = [name[len(application_id) + 1 : -len(_SUFFIX)] for name in new]
    log.warning(
        "the store%s %s begin%s empty, and no store uses the changelog%s %s. If a store was renamed, its state stays "
        "under the old name: stop the workers, and run `millpond reset` with `--internal-topics %s` to make the state "
        "again from the inputs. To rename it back keeps the state only if no record has been processed since: what was "
        "processed under the new name is missing from it. Topics of another application, whose id "
        "begins with '%s-', are no reason to do anything.",
        "" if len(stores) == 1 else "s",
        ", ".join(f"'{each}'" for each in stores),
        "s" if len(stores) == 1 else "",
        "" if len(left) == 1 else "s",
        ", ".join(f"'{each}'" for each in left),
        ",".join(left),
        application_id,
    )
