"""Another operator that serves the same StreamApp, such as that of a second release of the chart.

The two have different certificates and addresses, so each takes the other's objects for changed ones and writes its own
again, at once and for ever. The one that leads for longer notices it by the epoch of the other one, says so, and slows
down. Its epoch is the lower one, so it has to lead anew before it can write assignments again.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from millpond_operator.controllers.events import EventRecorder
from millpond_operator.controllers.pass_context import AppMemory
from millpond_operator.controllers.rollout.status import AppStatus
from millpond_operator.resources import StreamApp

__all__ = ("RivalOperators",)

log = logging.getLogger(__name__)

_INTERVAL = timedelta(seconds=30)
"""How often an operator looks at a StreamApp that another one serves, too."""


class RivalOperators:
    """Finds StreamApps that another operator serves.

    Args:
        leader_epoch: the epoch of this operator's leadership.
        events: tells people.
    """

    def __init__(self, leader_epoch: int, events: EventRecorder) -> None:
        self._leader_epoch = leader_epoch
        self._events = events

    async def wait(self, app: StreamApp, memory: AppMemory, now: datetime) -> timedelta | None:
        """Return how long to leave a StreamApp alone because another operator serves it; None to look at it now.

        Raises:
            LeadershipLost: the other one is the next leader of this release.
            ApiError: the event was not written.
        """
        epoch = AppStatus.of(app.status).leader_epoch
        if epoch <= self._leader_epoch:
            memory.led = True
        elif memory.led:  # not from a backup of another cluster: it rose while this operator led
            message = (
                "Another operator serves this StreamApp, too, so both undo each other's changes: set watchNamespaces "
                f"of both releases so that only one has '{app.namespace}', or uninstall one; then restart the other."
            )
            if memory.shared_since is None:
                log.warning("StreamApp %s/%s: %s", app.namespace, app.name, message)
                memory.shared_since = now
            await self._events.record(app, "Warning", "AnotherOperator", message)
            if memory.looked_at is not None and now - memory.looked_at < _INTERVAL:
                return _INTERVAL - max(now - memory.looked_at, timedelta(0))
        memory.looked_at = now
        return None
