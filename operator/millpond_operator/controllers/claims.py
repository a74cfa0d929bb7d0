"""Which StreamApp an application's id belongs to: two with one id on one Kafka would take each other's tasks."""

from __future__ import annotations

from collections.abc import Callable

from millpond_operator.resources import StreamApp

__all__ = ("Claims",)

Key = tuple[str, str]


class Claims:
    """The ids that are in use.

    Args:
        enqueue: asks for another pass over a StreamApp, when an id it waits for is free.
    """

    def __init__(self, enqueue: Callable[[Key], None]) -> None:
        self._enqueue = enqueue
        self._claims: dict[tuple[str, str], dict[Key, str]] = {}
        self._of: dict[Key, tuple[str, str]] = {}

    def taken_by(self, app: StreamApp, created: str) -> Key | None:
        """Claim the id of a StreamApp.

        Args:
            app: who wants it.
            created: when; the oldest one has it.

        Returns:
            Who has it; None when it is this one's.
        """
        key = (app.namespace, app.name)
        # The order of the brokers' addresses says nothing.
        servers = ",".join(sorted(each.strip() for each in app.spec.kafka.bootstrap_servers.split(",")))
        what = (servers, app.application_id)
        if self._of.get(key, what) != what:
            self.release(key)
        self._of[key] = what
        claims = self._claims.setdefault(what, {})
        claims[key] = created
        first = min(claims, key=lambda each: (claims[each], each))
        return None if first == key else first

    def release(self, key: Key) -> None:
        """A StreamApp is gone, or has another id now."""
        what = self._of.pop(key, None)
        if what is None:
            return
        left = self._claims[what]
        left.pop(key, None)
        if not left:
            del self._claims[what]
        for each in left:
            self._enqueue(each)
