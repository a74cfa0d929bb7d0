"""What one worker, or one stranger, may take of a coordinator that serves several tenants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millpond.protocol import Heartbeat, TopologySummary, Trouble

__all__ = ("MOST_BYTES", "Limits", "excess", "most_bytes")

#: No heartbeat has more bytes: one that names 100,000 tasks weighs less.
MOST_BYTES = 16 * 1024 * 1024
#: What a heartbeat may weigh whatever its application is, and while its topology is not known.
_ANY_BYTES, _FIRST_BYTES = 256 * 1024, 1024 * 1024
#: A task in each of `tasks`, `on_disk` and `taken_over`, with long numbers and a long name of a worker.
_TASK_BYTES = 256
_LONGEST_WORD, _MOST_TAGS = 256, 64
#: What may be longer than other words.
_LONGEST = {"address": 16 * 1024, "trouble": 16 * 1024}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is let in. Connections are counted as soon as they are accepted, before TLS."""

    connections: int = 4_000
    """All connections together."""
    connections_per_worker: int = 8
    """Connections that showed the token of one worker. A worker uses four at most."""
    strangers_burst: int = 16
    """New connections from one address that have not shown a valid token."""
    strangers_per_second: float = 4.0
    """How fast an address may open more of them. One that shows a valid token does not count."""
    stranger_timeout: timedelta = timedelta(seconds=10)
    """A connection that has not shown a valid token by then is closed."""
    body_timeout: timedelta = timedelta(seconds=10)
    """The body of a request has to be there by then."""
    requests_burst: float = 60.0
    """Requests of one worker that are answered at once; every 32 KiB of a heartbeat count as another one."""
    requests_per_second: float = 20.0
    """How fast they may go on. What is faster waits."""


def most_bytes(topology: TopologySummary | None) -> int:
    """How many bytes a heartbeat of an application may have."""
    if topology is None:
        return _FIRST_BYTES
    tasks = sum(each.partitions for each in topology.subtopologies)
    return min(_ANY_BYTES + tasks * _TASK_BYTES, MOST_BYTES)


def excess(heartbeat: Heartbeat) -> str | None:
    """What in a heartbeat is longer than anything that a worker says; None when nothing is.

    The coordinator keeps these for as long as it knows the worker.
    """
    for name in heartbeat.__struct_fields__:
        value = getattr(heartbeat, name)
        if isinstance(value, Trouble):
            value = value.reason + value.message
        if isinstance(value, str) and len(value) > _LONGEST.get(name, _LONGEST_WORD):
            most = _LONGEST.get(name, _LONGEST_WORD)
            return f"its {name} has {len(value)} characters, and {most} are the most"
    if len(heartbeat.tags) > _MOST_TAGS or any(
        len(key) > _LONGEST_WORD or len(value) > _LONGEST_WORD for key, value in heartbeat.tags.items()
    ):
        return f"it has more than {_MOST_TAGS} tags, or one of more than {_LONGEST_WORD} characters"
    return None
