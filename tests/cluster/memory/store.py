"""All versions of all objects, and the listeners."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from tests.cluster.memory.failures import expired
from tests.cluster.memory.kinds import Kind

__all__ = ("Change", "Entry", "Store")

Object = dict[str, Any]
encode = msgspec.json.Encoder().encode

_MOST_REMEMBERED = 100_000


class Entry:
    """One version of an object, immutable.

    Attributes:
        object: as JSON.
        version: its resource version.
    """

    __slots__ = ("_raw", "object", "version")

    def __init__(self, object: Object, version: int) -> None:
        self.object = object
        self.version = version
        self._raw: bytes | None = None

    @property
    def raw(self) -> bytes:
        """The bytes that the server sends."""
        if self._raw is None:
            self._raw = encode(self.object)
        return self._raw


class Change(NamedTuple):
    """A write."""

    version: int
    type: str
    """ADDED, MODIFIED or DELETED."""
    kind: Kind
    entry: Entry
    """As the object is now; when it was deleted, as it was last, with the version of its deletion."""
    before: Entry | None


_Names = dict[str, dict[str, Entry]]


class Store:
    """The objects, by kind, namespace and name."""

    def __init__(self) -> None:
        self.version = 1
        self.floor = 0
        """What is older than this version is forgotten."""
        self._objects: dict[Kind, _Names] = defaultdict(lambda: defaultdict(dict))
        self._history: dict[Kind, deque[Change]] = defaultdict(deque)
        self._remembered = 0
        self._listeners: list[Callable[[Change], None]] = []

    def listen(self, heard: Callable[[Change], None]) -> None:
        """Register a callback for every write, which is called before the writer gets its response."""
        self._listeners.append(heard)

    def get(self, kind: Kind, namespace: str, name: str) -> Entry | None:
        """The present state of an object."""
        return self._objects[kind][namespace].get(name)

    def entries(self, kind: Kind, namespace: str | None = None) -> Iterable[Entry]:
        """All objects of a kind by name; of all namespaces without `namespace`."""
        names = self._objects[kind]
        if namespace is not None:
            found = names.get(namespace, {})
            return [found[name] for name in sorted(found)]
        return [each[name] for space in sorted(names) for each in (names[space],) for name in sorted(each)]

    def entries_at(self, version: int, kind: Kind, namespace: str | None = None) -> Iterable[Entry]:
        """All objects of a kind as of a version.

        Raises:
            ApiFailure: the version was compacted.
        """
        if version < self.floor:
            raise expired("The resourceVersion for the provided list is too old.")
        found = {
            (each.object["metadata"].get("namespace", ""), each.object["metadata"]["name"]): each
            for each in self.entries(kind)
        }
        for change in reversed(self._history[kind]):
            if change.version <= version:
                break
            metadata = change.entry.object["metadata"]
            key = (metadata.get("namespace", ""), metadata["name"])
            if change.before is None:
                found.pop(key, None)
            else:
                found[key] = change.before
        return [found[key] for key in sorted(found) if namespace is None or key[0] == namespace]

    def since(self, kind: Kind, version: int) -> Iterator[Change]:
        """The writes after a version.

        Raises:
            ApiFailure: the version was compacted.
        """
        if version < self.floor:
            raise expired(f"too old resource version: {version} ({self.floor})")
        found: list[Change] = []
        for change in reversed(self._history[kind]):
            if change.version <= version:
                break
            found.append(change)
        return reversed(found)

    def next_version(self) -> int:
        """The version of the next write, which must follow at once."""
        self.version += 1
        return self.version

    def put(self, kind: Kind, object: Object) -> Entry:
        """Write an object. Its resource version becomes that of the write."""
        metadata = object["metadata"]
        version = self.next_version()
        object = {**object, "metadata": {**metadata, "resourceVersion": str(version)}}
        entry = Entry(object, version)
        space = self._objects[kind][metadata.get("namespace", "")]
        before = space.get(metadata["name"])
        space[metadata["name"]] = entry
        self._tell(Change(version, "MODIFIED" if before is not None else "ADDED", kind, entry, before))
        return entry

    def remove(self, kind: Kind, entry: Entry, last: Object | None = None) -> Entry:
        """Delete an object.

        Args:
            kind: its kind.
            entry: its present version.
            last: the last state that watches deliver.
        """
        object = last if last is not None else entry.object
        metadata = object["metadata"]
        version = self.next_version()
        object = {**object, "metadata": {**metadata, "resourceVersion": str(version)}}
        del self._objects[kind][metadata.get("namespace", "")][metadata["name"]]
        gone = Entry(object, version)
        self._tell(Change(version, "DELETED", kind, gone, entry))
        return gone

    def compact(self) -> None:
        """Delete all versions but the present ones."""
        self.floor = self.version
        self._history.clear()
        self._remembered = 0

    def _tell(self, change: Change) -> None:
        self._history[change.kind].append(change)
        self._remembered += 1
        if self._remembered > _MOST_REMEMBERED:
            self.compact()
        for heard in self._listeners:
            heard(change)
