"""The newest known state of every object.

Watches, lists and responses to the operator's own writes arrive in any order; resource versions decide which is newer.
So the operator sees its own writes at once, and a late message or a stale replica cannot restore an older state.

Objects are kept as JSON: as dicts they would take about ten times the memory, and decoding one takes microseconds.
Every call returns a new object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from .client import FIELD_MANAGER, Object
from .kinds import NETWORK_POLICY, POD_DISRUPTION_BUDGET, SERVICE, STATE_BOOTSTRAP, STATEFUL_SET, STREAM_APP, Kind

__all__ = ("APP_LABEL", "Cache", "Key", "app_in", "key_of", "version_of")

APP_LABEL = "millpond.dev/app"
#: Kinds whose `spec` is checked for fields that others added.
_SPEC_GUARDED = frozenset({STATEFUL_SET, SERVICE, POD_DISRUPTION_BUDGET, NETWORK_POLICY})
#: Deletions that are remembered per kind. Late messages arrive within minutes.
_MAX_TOMBSTONES = 10_000

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Object] = msgspec.json.Decoder(Object).decode


class Key(NamedTuple):
    """The key of an object within its kind."""

    namespace: str
    """"" for cluster-scoped objects."""
    name: str


def key_of(object: Object) -> Key:
    """Return the object's key."""
    meta = object["metadata"]
    return Key(meta.get("namespace", ""), meta["name"])


def version_of(object: Object) -> int:
    """Return the object's resource version; 0 when it has none."""
    return int(object["metadata"].get("resourceVersion") or 0)


def app_in(kind: Kind, object: Object) -> str | None:
    """Return the StreamApp that an object belongs to: by its label, or by a StateBootstrap's `spec`."""
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
class _KindEntries:
    """The objects of one kind."""

    entries: dict[Key, _Entry] = field(default_factory=dict)
    by_app: dict[Key, set[Key]] = field(default_factory=dict)
    tombstones: dict[Key, int] = field(default_factory=dict)
    listed: dict[str | None, int] = field(default_factory=dict)


class Cache:
    """Objects by kind, namespace and name. For one event loop."""

    def __init__(self) -> None:
        self._kinds: dict[Kind, _KindEntries] = {}

    def put(self, kind: Kind, object: Object) -> bool:
        """Store a state of an object.

        Of `metadata.managedFields`, only other managers' entries about the `spec` are kept, for the kinds that need it;
        of StreamApps only those of the scale subresource.

        Args:
            kind: its kind.
            object: its state; not to be used by the caller any more.

        Returns:
            Whether it is new: neither known already, nor older, nor deleted since.
        """
        return self._put(kind, _trimmed(kind, object))

    def remove(self, kind: Kind, which: Object | Key, resource_version: str | int | None = None) -> bool:
        """Remove a deleted object.

        Args:
            kind: its kind.
            which: its last state, or its key.
            resource_version: of the deletion. None: that of the last state, or, with a key, of the known state.

        Returns:
            Whether it was known.
        """
        state = self._of(kind)
        key = which if isinstance(which, Key) else key_of(which)
        entry = state.entries.get(key)
        if resource_version is not None:
            version = int(resource_version)
        elif isinstance(which, Key):
            version = entry.version if entry is not None else 0
        else:
            version = version_of(which)
        return self._remove(state, key, version)

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object | None:
        """Return an object; None when there is none."""
        entry = self._of(kind).entries.get(Key(namespace or "", name))
        return None if entry is None else _decode(entry.data)

    def version(self, kind: Kind, namespace: str | None, name: str) -> int:
        """Return the known resource version of an object, which may be that of its deletion; 0 for none."""
        state = self._of(kind)
        key = Key(namespace or "", name)
        entry = state.entries.get(key)
        return entry.version if entry is not None else state.tombstones.get(key, 0)

    def of_app(self, kind: Kind, namespace: str, app: str) -> list[Object]:
        """Return the objects of an application, by name."""
        state = self._of(kind)
        return [_decode(state.entries[key].data) for key in sorted(state.by_app.get(Key(namespace, app), ()))]

    def all(self, kind: Kind) -> Iterator[Object]:
        """Yield every object of a kind as it is now."""
        for entry in tuple(self._of(kind).entries.values()):
            yield _decode(entry.data)

    def encoded(self, kind: Kind) -> list[tuple[Key, bytes]]:
        """Return every object of a kind as JSON, for readers of a few fields."""
        return [(key, entry.data) for key, entry in self._of(kind).entries.items()]

    def keys(self, kind: Kind) -> list[Key]:
        """Return the keys of all objects of a kind."""
        return list(self._of(kind).entries)

    def app_of(self, kind: Kind, key: Key) -> str | None:
        """Return the application that an object belongs to."""
        entry = self._of(kind).entries.get(key)
        return None if entry is None else entry.app

    def count(self, kind: Kind) -> int:
        """Return the number of known objects of a kind."""
        return len(self._of(kind).entries)

    def resynced(
        self, kind: Kind, items: Iterable[Object], list_resource_version: str | int, namespace: str | None = None
    ) -> list[Object]:
        """Store a complete list, and remove objects that it lacks.

        A list that is older than an earlier one is ignored.

        Args:
            kind: the kind of the objects.
            items: all objects.
            list_resource_version: of the list.
            namespace: the namespace of the list; None for all.

        Returns:
            What was new: the new states of objects, and the last known states of removed ones.
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
        """Return whether a list is older than an earlier one."""
        return list_resource_version < self._of(kind).listed.get(namespace, 0)

    def prune(
        self, kind: Kind, listed: AbstractSet[Key], list_resource_version: int, namespace: str | None
    ) -> list[Object]:
        """Remove objects that a list lacks, except those that are newer than the list.

        Args:
            kind: the kind of the objects.
            listed: the keys of all objects in the list.
            list_resource_version: of the list.
            namespace: the namespace of the list; None for all.

        Returns:
            The last known states of the removed objects.
        """
        state = self._of(kind)
        state.listed[namespace] = list_resource_version
        gone: list[Object] = []
        for key, entry in tuple(state.entries.items()):
            within = namespace is None or key.namespace == namespace
            if within and key not in listed and entry.version <= list_resource_version:
                gone.append(_decode(entry.data))
                self._remove(state, key, list_resource_version)
        return gone

    def clear(self) -> None:
        """Remove everything."""
        self._kinds.clear()

    def _of(self, kind: Kind) -> _KindEntries:
        state = self._kinds.get(kind)
        if state is None:
            state = self._kinds[kind] = _KindEntries()
        return state

    def _put(self, kind: Kind, object: Object) -> bool:
        state = self._of(kind)
        key, version = key_of(object), version_of(object)
        before = state.entries.get(key)
        if before is not None and version <= before.version:
            return False
        if version <= state.tombstones.get(key, -1):
            return False
        state.tombstones.pop(key, None)
        app = app_in(kind, object)
        if before is not None and before.app != app:
            _remove_from_index(state, key, before.app)
        if app is not None:
            state.by_app.setdefault(Key(key.namespace, app), set()).add(key)
        state.entries[key] = _Entry(version, app, _encode(object))
        return True

    def _remove(self, state: _KindEntries, key: Key, version: int) -> bool:
        entry = state.entries.get(key)
        if entry is not None and entry.version > version:
            return False  # a newer object has this name
        if version > state.tombstones.get(key, 0):
            state.tombstones.pop(key, None)  # the newest last
            state.tombstones[key] = version
            if len(state.tombstones) > _MAX_TOMBSTONES:
                del state.tombstones[next(iter(state.tombstones))]
        if entry is None:
            return False
        del state.entries[key]
        _remove_from_index(state, key, entry.app)
        return True


def _trimmed(kind: Kind, object: Object) -> Object:
    """Remove the entries of `metadata.managedFields` that are not needed, in place; return the object."""
    meta = object["metadata"]
    entries = meta.pop("managedFields", None)
    if entries and kind == STREAM_APP:
        scaled = [each for each in entries if each.get("subresource") == "scale"]
        if scaled:
            meta["managedFields"] = scaled
    if entries and kind in _SPEC_GUARDED:
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


def _remove_from_index(state: _KindEntries, key: Key, app: str | None) -> None:
    if app is not None:
        owner = Key(key.namespace, app)
        keys = state.by_app[owner]
        keys.discard(key)
        if not keys:
            del state.by_app[owner]
