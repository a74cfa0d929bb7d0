"""Updates of the cache by watches and lists: a change requests a pass of its application, and lists check the watches.

A dead watch delivers nothing, and neither does the watch of a quiet cluster. A list distinguishes them: when it shows
an object that is newer than the known one, a live watch delivers that object too, a little later.
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
    """Updates the cache from watches and lists.

    Args:
        cache: the cache.
        on_change: called with the namespace and name of an application when one of its objects changed.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, cache: Cache, on_change: Callable[[str, str], None], clock: Callable[[], float] = clock.monotonic
    ) -> None:
        self.cache = cache
        self._on_change = on_change
        self._clock = clock
        self._awaited: dict[tuple[Kind, Key], tuple[int, float]] = {}

    def event(self, kind: Kind, type: str | None, object: Object) -> None:
        """Process an event of a watch.

        Args:
            kind: of the object.
            type: `ADDED`, `MODIFIED` or `DELETED`; None for the initial list of the watch.
            object: its state; not to be used by the caller any more.
        """
        key, version = key_of(object), version_of(object)
        awaited = self._awaited.get((kind, key))
        if awaited is not None and awaited[0] <= version:
            del self._awaited[kind, key]
        before = self.cache.app_of(kind, key)
        news = self.cache.remove(kind, object) if type == "DELETED" else self.cache.put(kind, object)
        if news:
            self._notify(kind, key, object, before)

    def put_listed(self, kind: Kind, object: Object, *, watched: bool = True) -> None:
        """Process an object in a list, which may be new.

        Args:
            kind: of the object.
            object: its state; not to be used by the caller any more.
            watched: whether a watch should deliver it too.
        """
        key, version = key_of(object), version_of(object)
        before = self.cache.app_of(kind, key)
        if self.cache.put(kind, object):
            if watched:
                since = self._awaited.get((kind, key), (0, self._clock()))[1]
                self._awaited[kind, key] = (version, since)
            self._notify(kind, key, object, before)

    def removed_by_list(self, kind: Kind, object: Object) -> None:
        """Process an object that a list lacks; the cache has removed it already.

        Args:
            kind: of the object.
            object: its last known state.
        """
        key = key_of(object)
        self._awaited.pop((kind, key), None)
        self._notify(kind, key, object, None)

    def overdue(self, patience: timedelta) -> list[Overdue]:
        """Return the objects that a list showed longer ago than `patience` and the watch has not delivered since."""
        now = self._clock()
        late: list[Overdue] = []
        for (kind, key), (_, since) in tuple(self._awaited.items()):
            if self.cache.get(kind, key.namespace, key.name) is None:
                del self._awaited[kind, key]  # deleted since; a restarted watch does not report that
            elif now - since > patience.total_seconds():
                late.append(Overdue(kind, key, timedelta(seconds=now - since)))
        return late

    def reset(self) -> None:
        """Forget the objects that the watch did not deliver: it restarts."""
        self._awaited.clear()

    def _notify(self, kind: Kind, key: Key, object: Object, before: str | None) -> None:
        if kind == STREAM_APP:
            self._on_change(key.namespace, key.name)
            return
        for app in {before, app_in(kind, object)}:
            if app:
                self._on_change(key.namespace, app)
