"""The newest known state of every object that was seen.

Watches, lists and the answers to the operator's own writes arrive in any order; resource versions say which is newer.
So the operator sees its own writes at once, and nothing that comes late or from a stale replica takes it back in time.

Objects are kept as JSON: as dicts they would take about ten times the memory, and decoding one costs microseconds.
Whoever asks for an object gets one of his own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from .client import FIELD_MANAGER, Object
from .kinds import NETWORK_POLICY, POD_DISRUPTION_BUDGET, SERVICE, STATE_BOOTSTRAP, STATEFUL_SET, Kind

__all__ = ("APP_LABEL", "Cache", "Key", "app_in", "key_of", "version_of")

APP_LABEL = "millpond.dev/app"
#: Kinds of which it matters what others added to the `spec`.
_GUARDED = frozenset({STATEFUL_SET, SERVICE, POD_DISRUPTION_BUDGET, NETWORK_POLICY})
#: Deletions that are remembered per kind. What comes late comes within minutes.
_MOST_TOMBSTONES = 10_000

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Object] = msgspec.json.Decoder(Object).decode


class Key(NamedTuple):
    """Which object of its kind."""

    namespace: str
    """"" for objects that are in none."""
    name: str


def key_of(object: Object) -> Key:
    """The object's key."""
    meta = object["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def version_of(object: Object) -> int:
    """The object's resource version; 0 when it has none."""
    return int(object["metadata"].get("resourceVersion") or 0)


def app_in(kind: Kind, object: Object) -> str | None:
    """The StreamApp that an object is for: by its label, or by what a StateBootstrap names."""
    if kind == STATE_BOOTSTRAP:
        app = (object.get("spec") or {}).get("streamApp")
    else:
        app = (object["metadata"].get("labels") or {}).get(APP_LABEL)
    return app or None


class _Entry(NamedTuple):
    version: int
    app: str | None
    data: bytes


@dataclass
class _Kept:
    """All of one kind."""

    entries: dict[Key, _Entry] = field(default_factory=dict)
    by_app: dict[Key, set[Key]] = field(default_factory=dict)
    tombstones: dict[Key, int] = field(default_factory=dict)
    listed: dict[str | None, int] = field(default_factory=dict)


class Cache:
    """Objects by kind, namespace and name. For one event loop."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, _Kept] = {}

    def put(self, kind: Kind, object: Object) -> bool:
        """Take in a state of an object, which becomes the cache's.

        Of its `metadata.managedFields` only what others own of the `spec` is kept, of the kinds where that matters.

        Returns:
            Whether it is news: not what is known already, nor older, nor of an object that was deleted since.
        """
        return self._put(kind, _trimmed(kind, object))

    def gone(self, kind: Kind, which: Object | Key, resource_version: str | int | None = None) -> bool:
        """Take in that an object was deleted.

        Args:
            kind: its kind.
            which: its last state, or its key.
            resource_version: of the deletion. None: that of the last state, or, with a key, of the one that is known.

        Returns:
            Whether it is news.
        """
        kept = self._of(kind)
        key = which if isinstance(which, Key) else key_of(which)
        entry = kept.entries.get(key)
        if resource_version is not None:
            version = int(resource_version)
        elif isinstance(which, Key):
            version = entry.version if entry is not None else 0
        else:
            version = version_of(which)
        return self._bury(kept, key, version)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """An object of the caller's own, or None when there is none."""
        entry = self._of(kind).entries.get(Key(namespace or "", name))
        return None if entry is None else _decode(entry.data)

    def version(self, kind: Kind, namespace: str | None, name: str) -> int:
        """The resource version that is known of an object, be it the one of its deletion; 0 for none."""
        kept = self._of(kind)
        key = Key(namespace or "", name)
        entry = kept.entries.get(key)
        return entry.version if entry is not None else kept.tombstones.get(key, 0)

    def of_app(self, kind: Kind, namespace: str, app: str) -> list[Object]:
        """The objects that are for an application, by name."""
        kept = self._of(kind)
        return [_decode(kept.entries[key].data) for key in sorted(kept.by_app.get(Key(namespace, app), ()))]

    def all(self, kind: Kind) -> Iterator[Object]:
        """Every object of a kind as it is now."""
        for entry in tuple(self._of(kind).entries.values()):
            yield _decode(entry.data)

    def keys(self, kind: Kind) -> list[Key]:
        """The keys of all objects of a kind."""
        return list(self._of(kind).entries)

    def app_of(self, kind: Kind, key: Key) -> str | None:
        """The application that an object is for."""
        entry = self._of(kind).entries.get(key)
        return None if entry is None else entry.app

    def count(self, kind: Kind) -> int:
        """How many objects of a kind are known."""
        return len(self._of(kind).entries)

    def resynced(
        self, kind: Kind, items: Iterable[Object], list_resource_version: str | int, namespace: str | None = None
    ) -> list[Object]:
        """Take in a list: everything in it, and that nothing else was there at its resource version.

        A list that is older than one that was taken in before says nothing new and is ignored.

        Args:
            kind: the kind of the objects.
            items: all there are.
            list_resource_version: of the list.
            namespace: which one the list is of; None for all.

        Returns:
            What was news: the new states of objects, and the last known ones of those that are gone.
        """
        version = int(list_resource_version or 0)
        if self.outdated(kind, version, namespace):
            return []
        listed: set[Key] = set()
        news: list[Object] = []
        for item in items:
            listed.add(key_of(item))
            if self._put(kind, _trimmed(kind, item)):
                news.append(item)
        return news + self.prune(kind, listed, version, namespace)

    def outdated(self, kind: Kind, list_resource_version: int, namespace: str | None = None) -> bool:
        """Whether a list is older than one that was taken in before."""
        return list_resource_version < self._of(kind).listed.get(namespace, 0)

    def prune(
        self, kind: Kind, listed: AbstractSet[Key], list_resource_version: int, namespace: str | None
    ) -> list[Object]:
        """Forget what a list lacks; what is newer than the list stays.

        Args:
            kind: the kind of the objects.
            listed: the keys of all there are.
            list_resource_version: of the list.
            namespace: which one the list is of; None for all.

        Returns:
            The last known states of the objects that are gone.
        """
        kept = self._of(kind)
        kept.listed[namespace] = list_resource_version
        gone: list[Object] = []
        for key, entry in tuple(kept.entries.items()):
            within = namespace is None or key.namespace == namespace
            if within and key not in listed and entry.version <= list_resource_version:
                gone.append(_decode(entry.data))
                self._bury(kept, key, list_resource_version)
        return gone

    def clear(self) -> None:
        """Forget everything."""
        self._kinds.clear()

    def _of(self, kind: Kind) -> _Kept:
        kept = self._kinds.get(kind)
        if kept is None:
            kept = self._kinds[kind] = _Kept()
        return kept

    def _put(self, kind: Kind, object: Object) -> bool:
        kept = self._of(kind)
        key, version = key_of(object), version_of(object)
        before = kept.entries.get(key)
        if before is not None and version <= before.version:
            return False
        if version <= kept.tombstones.get(key, -1):
            return False
        kept.tombstones.pop(key, None)
        app = app_in(kind, object)
        if before is not None and before.app != app:
            _unindex(kept, key, before.app)
        if app is not None:
            kept.by_app.setdefault(Key(key.namespace, app), set()).add(key)
        kept.entries[key] = _Entry(version, app, _encode(object))
        return True

    def _bury(self, kept: _Kept, key: Key, version: int) -> bool:
        entry = kept.entries.get(key)
        if entry is not None and entry.version > version:
            return False  # there is a newer one of that name
        if version > kept.tombstones.get(key, 0):
            kept.tombstones.pop(key, None)  # the newest last
            kept.tombstones[key] = version
            if len(kept.tombstones) > _MOST_TOMBSTONES:
                del kept.tombstones[next(iter(kept.tombstones))]
        if entry is None:
            return False
        del kept.entries[key]
        _unindex(kept, key, entry.app)
        return True


def _trimmed(kind: Kind, object: Object) -> Object:
    """The same object with no more of `metadata.managedFields` than is kept."""
    meta = object["metadata"]
    entries = meta.pop("managedFields", None)
    if entries and kind in _GUARDED:
        others = [
            each | {"fieldsV1": {"f:spec": each["fieldsV1"]["f:spec"]}}
            for each in entries
            if (each.get("manager"), each.get("operation")) != (FIELD_MANAGER, "Apply")
            and each.get("subresource") in {None, "", "scale"}
            and "f:spec" in (each.get("fieldsV1") or {})
        ]
        if others:
            meta["managedFields"] = others
    return object


def _unindex(kept: _Kept, key: Key, app: str | None) -> None:
    if app is not None:
        owner = Key(key.namespace, app)
        keys = kept.by_app[owner]
        keys.discard(key)
        if not keys:
            del kept.by_app[owner]
