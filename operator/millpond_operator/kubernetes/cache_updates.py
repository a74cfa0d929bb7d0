"""Where watches and lists meet: what is news goes into the cache and wakes its application, and each is measured by the other.

A watch that has died is silent, and so is one of a quiet cluster. A list tells them apart: when it shows an object that
is newer than all that is known, the watch has to deliver it too, within a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from millpond.protocol import clock

from .cache import Cache, Key, app_in, key_of, version_of
from .client import Object
from .kinds import STREAM_APP, Kind

__all__ = ("CacheUpdates", "Overdue")


@dataclass(frozen=True)
class Overdue:
    """A state of an object that a list showed and the watch did not deliver."""

    kind: Kind
    key: Key
    since: timedelta

    def __str__(self) -> str:
        return f"{self.kind} {self.key.namespace}/{self.key.name}, {self.since.total_seconds():.0f} s ago"


class CacheUpdates:
    """Takes in what the API server says, by whichever way.

    Args:
        cache: where it goes.
        on_change: is called with the namespace and the name of the application that something changed of.
        clock: monotonic seconds.
    """

    def __init__(
        self, cache: Cache, on_change: Callable[[str, str], None], clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self.cache = cache
        self._on_change = on_change
        self._clock = clock
        self._awaited: dict[tuple[Kind, Key], tuple[int, float]] = {}

    def event(self, kind: Kind, type: str | None, object: Object) -> None:
        """The watch delivered something.

        Args:
            kind: of the object.
            type: `ADDED`, `MODIFIED` or `DELETED`; None while the watch lists what there is.
            object: its state, which becomes the cache's.
        """
        key, version = key_of(object), version_of(object)
        awaited = self._awaited.get((kind, key))
        if awaited is not None and awaited[0] <= version:
            del self._awaited[kind, key]
        before = self.cache.app_of(kind, key)
        news = self.cache.gone(kind, object) if type == "DELETED" else self.cache.put(kind, object)
        if news:
            self._tell(kind, key, object, before)

    def listed(self, kind: Kind, object: Object, *, watched: bool = True) -> None:
        """A list has a state of an object that may be news.

        Args:
            kind: of the object.
            object: its state, which becomes the cache's.
            watched: whether a watch was at work that should have delivered it, or will.
        """
        key, version = key_of(object), version_of(object)
        before = self.cache.app_of(kind, key)
        if self.cache.put(kind, object):
            if watched:
                since = self._awaited.get((kind, key), (0, self._clock()))[1]
                self._awaited[kind, key] = (version, since)
            self._tell(kind, key, object, before)

    def missed(self, kind: Kind, object: Object) -> None:
        """A list lacks an object that was known; the cache forgot it already.

        Args:
            kind: of the object.
            object: its last known state.
        """
        key = key_of(object)
        self._awaited.pop((kind, key), None)
        self._tell(kind, key, object, None)

    def overdue(self, patience: timedelta) -> list[Overdue]:
        """What lists showed longer ago than `patience`, and the watch has not delivered since."""
        now = self._clock()
        late: list[Overdue] = []
        for (kind, key), (_, since) in tuple(self._awaited.items()):
            if self.cache.get(kind, key.namespace, key.name) is None:
                del self._awaited[kind, key]  # deleted since, and a watch that begins anew does not tell
            elif now - since > patience.total_seconds():
                late.append(Overdue(kind, key, timedelta(seconds=now - since)))
        return late

    def await_nothing(self) -> None:
        """Forget what the watch did not deliver: it begins anew."""
        self._awaited.clear()

    def _tell(self, kind: Kind, key: Key, object: Object, before: str | None) -> None:
        if kind == STREAM_APP:
            self._on_change(key.namespace, key.name)
            return
        for app in {before, app_in(kind, object)}:
            if app:
                self._on_change(key.namespace, app)
