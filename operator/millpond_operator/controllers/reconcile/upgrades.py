"""Restarts that a new version of the operator causes: a few StreamApps at a time, the others wait for their turn.

A version of the operator may make pods differently than the one before. Then every StreamApp has another revision at once,
though nobody changed it. Such a revision waits until the budget has room, and what ran before stays wanted meanwhile; a
change of the StreamApp itself waits for nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from millpond_operator.controllers.pass_context import Key, ReconcilePass
from millpond_operator.controllers.rollout.status import AppStatus, Rendered, instant

from .applier import Applier

__all__ = ("Upgrades", "former_revision")

#: A StreamApp whose restarts take longer holds up the others no longer: its brokers may be away for days.
_PATIENCE = timedelta(hours=1)
#: How often to see whether there is room, should nobody tell.
_TURN_IN = timedelta(minutes=1)


def former_revision(
    status: AppStatus, generation: int, specification: str, revision: str, at_hand: Collection[str], *, goes_back: bool
) -> str:
    """Return the revision that an earlier version of the operator made of the same specification.

    Args:
        status: as it was written down last.
        generation: of the StreamApp.
        specification: the digest of what of the StreamApp shows in pods.
        revision: that this operator makes of it.
        at_hand: revisions whose pod template is there, so that they can go on.
        goes_back: whether the last good revision runs in the place of one that failed.

    Returns:
        That revision; "" when the revision is the same, when the StreamApp itself changed, and when the former revision
        cannot go on.
    """
    rendered = status.rendered
    if rendered is None and status.observed_generation == generation:  # written by a version that did not note it
        rendered = Rendered(specification, status.failed.revision if status.failed else status.target_revision)
    if rendered is None or rendered.specification != specification or rendered.revision in {"", revision}:
        return ""
    failed = status.failed is not None and status.failed.revision == rendered.revision
    runs = status.current_revision if failed and goes_back else rendered.revision
    return rendered.revision if runs in at_hand else ""


class Upgrades:
    """The budget: how many StreamApps restart their workers at a time because of the operator's version.

    Args:
        budget: so many.
        enqueue: asks for another pass over a StreamApp whose turn it may be.
    """

    def __init__(self, budget: int, enqueue: Callable[[Key], None]) -> None:
        self._budget = budget
        self._enqueue = enqueue
        self._since: dict[Key, datetime] = {}
        """The StreamApps that restart, and since when."""
        self._waiting: dict[Key, None] = {}
        """Those that wait, in the order in which they asked first."""

    @property
    def waiting(self) -> int:
        """How many StreamApps wait."""
        return len(self._waiting)

    def prime(self, apps: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Take note of what an operator before this one had begun, before anything is decided.

        Args:
            apps: all StreamApps, as the API server has them.
            now: the time of day.
        """
        for app in apps:
            rollout = AppStatus.of(app.get("status")).rollout
            if rollout is not None and rollout.upgrade:
                metadata = app["metadata"]
                self._since[metadata["namespace"], metadata["name"]] = instant(rollout.started_at, now)

    def admits(self, key: Key, status: AppStatus, now: datetime) -> bool:
        """Whether a StreamApp may begin to restart its workers now.

        One that is in the middle of a rollout, or whose last one failed, has to come to an end with that first.
        """
        if key in self._since:
            return True
        if status.rollout is not None or status.failed is not None:
            self._withdraw(key)
            return False
        self._waiting.setdefault(key)
        if sum(now - since < _PATIENCE for since in self._since.values()) >= self._budget:
            return False
        del self._waiting[key]
        self._since[key] = now
        return True

    async def take_turn(self, work: ReconcilePass, applier: Applier) -> None:
        """Where only the operator's version makes another revision: want the former one until there is room for it.

        Args:
            work: the pass. Its revision and template become the former ones while it waits.
            applier: has the templates.

        Raises:
            ApiError: the former template cannot be kept.
        """
        app, status = work.app, work.status
        if app.deleting or not work.observed.pods:  # nothing restarts
            return
        at_hand, back = applier.kept(app), app.spec.rollout.auto_rollback
        former = former_revision(status, app.generation, work.specification, work.revision, at_hand, goes_back=back)
        if not former:
            return
        work.upgrade = self.admits((app.namespace, app.name), status, work.now)
        if not work.upgrade:
            work.upgrade_waits = status.failed is None
            work.revision, work.template = former, await applier.template(app, former) or work.template
            work.come_again(_TURN_IN)

    def note(self, key: Key, *, waits: bool, restarts: bool) -> None:
        """Take note of what a pass decided.

        Args:
            key: of the StreamApp.
            waits: whether it waits for its turn.
            restarts: whether a rollout is under way.
        """
        if not waits:
            self._withdraw(key)
        if not restarts and self._since.pop(key, None) is not None:
            self._next()

    def forget(self, key: Key) -> None:
        """The StreamApp is gone."""
        self.note(key, waits=False, restarts=False)

    def _withdraw(self, key: Key) -> None:
        if key in self._waiting:
            del self._waiting[key]
            self._next()

    def _next(self) -> None:
        for key in list(self._waiting)[: self._budget]:
            self._enqueue(key)
