"""Whether all workers have had time to load a new certificate authority."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

__all__ = ("Spread",)

log = logging.getLogger(__name__)


class Spread:
    """Observes how an authority reaches workers.

    Args:
        delay: how long workers need to load a ConfigMap that was written.
        lacking: returns the names of the workers' ConfigMaps that do not contain an authority yet.
    """

    def __init__(self, delay: timedelta, lacking: Callable[[str], Sequence[str]]) -> None:
        self._delay = delay
        self._lacking = lacking
        self._since: datetime | None = None
        """Since when the ConfigMaps of all workers contain the authority."""
        self._logged: tuple[str, ...] = ()

    def restart(self) -> None:
        """Begin with another authority."""
        self._since = None

    def is_complete(self, authority: str, now: datetime) -> bool:
        """Return whether all workers have had time to load an authority, which is given as PEM."""
        lacking = tuple(self._lacking(authority))
        if lacking:
            self._since = None
            if lacking != self._logged:
                log.info("coordinator certificate: waiting until the next authority is in ConfigMap %s", _some(lacking))
            self._logged = lacking
            return False
        if self._since is None:
            self._since = now
        return now - self._since >= self._delay


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
