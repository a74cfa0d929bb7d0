"""Limits for each worker and each unauthenticated sender, where a coordinator serves several tenants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import msgspec

from millpond.protocol import Heartbeat, TopologySummary, Trouble
from millpond.protocol.loads import TaskLoad

__all__ = ("MOST_BYTES", "Limits", "excess", "most_bytes", "without_large_figures")

#: Upper limit of a heartbeat, in bytes: one that names 100,000 tasks is smaller.
MOST_BYTES = 16 * 1024 * 1024
#: Bytes of a heartbeat besides its tasks, and while the topology is not known.
_BASE_BYTES, _UNKNOWN_TOPOLOGY_BYTES = 256 * 1024, 1024 * 1024
#: Bytes of one task in `tasks`, `on_disk`, `taken_over` and `load`, with long numbers and a long worker id.
_TASK_BYTES = 384
#: Bytes of the inputs in `load`, of which the coordinator keeps three, and of `graph`; a worker sends less.
_MAX_LOAD_BYTES, _INPUT_BYTES, _MAX_GRAPH_BYTES = 128 * 1024, 64, 192 * 1024
_MAX_FIELD, _MAX_TAGS = 256, 64
#: Characters of the fields that may be longer than `_MAX_FIELD`.
_MAX_LONG_FIELDS = {"address": 16 * 1024, "trouble": 16 * 1024}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of connections and requests. A connection counts as soon as it is accepted, before TLS."""

    connections: int = 4_000
    """Connections in total."""
    connections_per_worker: int = 8
    """Connections that presented the token of one worker. A worker uses four at most."""
    strangers_burst: int = 16
    """New connections of one address that have not presented a valid token."""
    strangers_per_second: float = 4.0
    """How many more of them an address may open per second. One with a valid token does not count."""
    stranger_timeout: timedelta = timedelta(seconds=10)
    """A connection without a valid token is closed after this time."""
    body_timeout: timedelta = timedelta(seconds=10)
    """The body of a request has to arrive within this time."""
    requests_burst: float = 60.0
    """Requests of one worker that are answered at once. Every 32 KiB of a heartbeat count as a further request."""
    requests_per_second: float = 20.0
    """Requests per second after the burst; faster ones are delayed."""


def most_bytes(topology: TopologySummary | None) -> int:
    """Return how many bytes a heartbeat of an application may have."""
    if topology is None:
        return _UNKNOWN_TOPOLOGY_BYTES
    tasks = sum(each.partitions for each in topology.subtopologies)
    return min(_BASE_BYTES + tasks * _TASK_BYTES, MOST_BYTES)


def excess(heartbeat: Heartbeat) -> str | None:
    """Return which field of a heartbeat is longer than any valid one, as a clause; None when all are valid.

    The coordinator keeps these fields for as long as it knows the worker.
    """
    for name in heartbeat.__struct_fields__:
        value = getattr(heartbeat, name)
        if isinstance(value, Trouble):
            value = value.reason + value.message
        if isinstance(value, str) and len(value) > _MAX_LONG_FIELDS.get(name, _MAX_FIELD):
            most = _MAX_LONG_FIELDS.get(name, _MAX_FIELD)
            return f"its {name} has {len(value)} characters, more than {most}"
    if len(heartbeat.tags) > _MAX_TAGS or any(
        len(key) > _MAX_FIELD or len(value) > _MAX_FIELD for key, value in heartbeat.tags.items()
    ):
        return f"it has more than {_MAX_TAGS} tags, or a tag of more than {_MAX_FIELD} characters"
    return None


def without_large_figures(heartbeat: Heartbeat) -> Heartbeat:
    """Remove load and graph if they are larger than those of any worker: the coordinator keeps them in memory."""
    load, graph = heartbeat.load, heartbeat.graph
    if load is not None and sum(map(_bytes_of, load.tasks.values())) > _MAX_LOAD_BYTES:
        heartbeat = msgspec.structs.replace(heartbeat, load=None)
    if graph is not None and len(msgspec.json.encode(graph)) > _MAX_GRAPH_BYTES:
        heartbeat = msgspec.structs.replace(heartbeat, graph=None)
    return heartbeat


def _bytes_of(task: TaskLoad) -> int:
    """Return about how many bytes the inputs of a task have, beyond those that every task may have."""
    return sum(_INPUT_BYTES + len(topic) for topic in task.inputs) - 2 * _INPUT_BYTES
