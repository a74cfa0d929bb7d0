"""Restarts caused by a new version of the operator: a few StreamApps at a time, the others wait for their turn.

A new version of the operator may render pods differently. Then every StreamApp has another revision at once, without a
change of its specification. Such a revision waits until the budget has room, and the former revision stays wanted
meanwhile. A change of the StreamApp itself does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from millpond_operator.controllers.pass_context import Key, ReconcilePass
from millpond_operator.controllers.rollout.status import AppStatus, Rendered, instant

from .revision_templates import RevisionTemplates

__all__ = ("Upgrades", "former_revision")

#: After this time a restarting StreamApp no longer counts towards the budget: its brokers may be away for days.
_MAX_TURN = timedelta(hours=1)
#: How often a waiting StreamApp checks the budget, in case a request for a pass is missed.
_CHECK_INTERVAL = timedelta(minutes=1)


def former_revision(  # noqa: PLR0913 - all are needed for one answer
    status: AppStatus, generation: int, specification: str, revision: str, kept: Collection[str], *, auto_rollback: bool
) -> str:
    """Return the revision that an earlier version of the operator rendered from the same specification.

    Args:
        status: the saved status.
        generation: the generation of the StreamApp.
        specification: the digest of those fields of the StreamApp that show in pods.
        revision: the revision that this operator renders.
        kept: the revisions whose pod templates exist.
        auto_rollback: whether the last good revision runs in place of one that failed.

    Returns:
        That revision; "" when the revision is the same, when the StreamApp itself changed, or when the former revision
        cannot continue to run.
    """
    rendered = status.rendered
    if rendered is None and status.observed_generation == generation:  # saved by a version that did not note it
        rendered = Rendered(specification, status.failed.revision if status.failed else status.target_revision)
    if rendered is None or rendered.specification != specification or rendered.revision in {"", revision}:
        return ""
    failed = status.failed is not None and status.failed.revision == rendered.revision
    runs = status.current_revision if failed and auto_rollback else rendered.revision
    return rendered.revision if runs in kept else ""


class Upgrades:
    """The budget of StreamApps that restart their workers at a time because of the operator's version.

    Args:
        budget: the number of StreamApps.
        enqueue: requests a pass over a StreamApp that may restart its workers now.
    """

    def __init__(self, budget: int, enqueue: Callable[[Key], None]) -> None:
        self._budget = budget
        self._enqueue = enqueue
        self._since: dict[Key, datetime] = {}
        """Since when each restarting StreamApp restarts its workers."""
        self._waiting: dict[Key, None] = {}
        """The waiting StreamApps, in the order of their arrival."""

    @property
    def waiting(self) -> int:
        """The number of waiting StreamApps."""
        return len(self._waiting)

    def prime(self, apps: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Note the restarts that a former leader began, before the first decision.

        Args:
            apps: all StreamApps as API server objects.
            now: the current time.
        """
        for app in apps:
            rollout = AppStatus.of(app.get("status")).rollout
            if rollout is not None and rollout.upgrade:
                metadata = app["metadata"]
                self._since[metadata["namespace"], metadata["name"]] = instant(rollout.started_at, now)

    def admits(self, key: Key, status: AppStatus, now: datetime) -> bool:
        """Return whether a StreamApp may restart its workers now.

        One with a rollout in progress, or whose last rollout failed, has to finish with that first.
        """
        if key in self._since:
            return True
        if status.rollout is not None or status.failed is not None:
            self._withdraw(key)
            return False
        self._waiting.setdefault(key)
        if sum(now - since < _MAX_TURN for since in self._since.values()) >= self._budget:
            return False
        del self._waiting[key]
        self._since[key] = now
        return True

    async def take_turn(self, work: ReconcilePass, templates: RevisionTemplates) -> None:
        """Let a StreamApp whose revision differs only because of the operator's version wait for its turn.

        Args:
            work: the pass. While it waits, its revision and template become the former ones.
            templates: the pod templates of revisions.

        Raises:
            ApiError: the former template cannot be kept.
        """
        app, status = work.app, work.status
        if app.deleting or not work.observed.pods:  # nothing restarts
            return
        kept, auto_rollback = templates.kept_revisions(app), app.spec.rollout.auto_rollback
        former = former_revision(
            status, app.generation, work.specification, work.revision, kept, auto_rollback=auto_rollback
        )
        if not former:
            return
        work.upgrade = self.admits((app.namespace, app.name), status, work.now)
        if not work.upgrade:
            work.upgrade_waits = status.failed is None
            work.revision, work.template = former, await templates.template(app, former) or work.template
            work.requeue(_CHECK_INTERVAL)

    def note(self, key: Key, *, waits: bool, restarts: bool) -> None:
        """Note the decision of a pass.

        Args:
            key: the StreamApp.
            waits: whether it waits for its turn.
            restarts: whether a rollout is in progress.
        """
        if not waits:
            self._withdraw(key)
        if not restarts and self._since.pop(key, None) is not None:
            self._next()

    def forget(self, key: Key) -> None:
        """Forget a deleted StreamApp."""
        self.note(key, waits=False, restarts=False)

    def _withdraw(self, key: Key) -> None:
        if key in self._waiting:
            del self._waiting[key]
            self._next()

    def _next(self) -> None:
        for key in list(self._waiting)[: self._budget]:
            self._enqueue(key)
