"""Which StreamApp an application's id belongs to: two with one id on one Kafka would take each other's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ("Claims",)

Key = tuple[str, str]


class Claims:
    """The ids that are in use. Who has an id keeps it until it goes; those who want it too wait, whatever their age.

    Args:
        enqueue: asks for another pass over a StreamApp, when an id it waits for is free.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._claims: dict[tuple[str, str], list[Key]] = {}
        self._of: dict[Key, tuple[str, str]] = {}
        self._by_id: dict[str, set[Key]] = {}

    def prime(self, apps: Iterable[Mapping[str, Any]]) -> None:
        """Claim for all StreamApps there are, before anything is decided: those that were started come first."""

        def precedence(app: Mapping[str, Any]) -> tuple[bool, str, str, str]:
            metadata = app["metadata"]
            started = bool((app.get("status") or {}).get("targetRevision"))
            return not started, metadata.get("creationTimestamp", ""), metadata["namespace"], metadata["name"]

        for app in sorted(apps, key=precedence):
            self.taken_by(app)

    def taken_by(self, app: Mapping[str, Any]) -> Key | None:
        """Claim the id of a StreamApp, as the API server gave it.

        Returns:
            Who has it; None when it is this one's.
        """
        metadata, spec = app["metadata"], app.get("spec") or {}
        key = (metadata["namespace"], metadata["name"])
        id = str(spec.get("applicationId") or metadata["name"])
        # The order of the brokers' addresses says nothing.
        servers = str((spec.get("kafka") or {}).get("bootstrapServers", ""))
        what = (",".join(sorted(each.strip() for each in servers.split(","))), id)
        if self._of.get(key, what) != what:
            self.release(key)
        self._of[key] = what
        self._by_id.setdefault(id, set()).add(key)
        waiting = self._claims.setdefault(what, [])
        if key not in waiting:
            waiting.append(key)
        return None if waiting[0] == key else waiting[0]

    def others(self, key: Key) -> list[Key]:
        """Further StreamApps with the same id, on whatever brokers: one Kafka has many addresses."""
        what = self._of.get(key)
        return [] if what is None else sorted(self._by_id.get(what[1], set()) - {key})

    def release(self, key: Key) -> None:
        """A StreamApp is gone, or has another id now."""
        what = self._of.pop(key, None)
        if what is None:
            return
        same_id = self._by_id[what[1]]
        same_id.discard(key)
        if not same_id:
            del self._by_id[what[1]]
        left = self._claims[what]
        left.remove(key)
        if not left:
            del self._claims[what]
        for each in dict.fromkeys((*left, *sorted(same_id))):
            self._enqueue(each)
