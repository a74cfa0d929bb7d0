"""Traces: the way of a record through the sub-topologies, if its producer has sampled it.

A record with a sampled `traceparent` header (W3C Trace Context) has a span while a task works on it: from its
processing to the commit of its results. Output that carries the header of the record gets the context of the span
instead, so that the span of the next sub-topology, and of the consumer of the output, is a child of it.

Only the outbox is changed: stores and changelogs have the headers as they came, with tracing and without it. A task
without tracing has no `TaskTracer`, and a record without headers does not come to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Message

from millpond.topology import TaskId

from .context import Headers, Outgoing

__all__ = ("TRACEPARENT", "Parent", "RecordSpan", "TaskTracer", "Tracing", "sampled_parent")

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"

_FORM = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: The length of a header without further fields, which ends with its flags; and the last digits of odd flags.
_FLAGS, _SAMPLED = 55, b"13579bdf"
_HEADERS_SLOT = 7
#: How many contexts a task keeps for output that comes later than its record, from record caches and suppress().
_MAX_KNOWN = 1_000


class Parent(NamedTuple):
    """The context that a record came with."""

    header: bytes
    """The value of `traceparent`."""
    trace_id: str
    span_id: str
    flags: int
    """The flags of the header; it is sampled."""
    state: bytes | None
    """The value of `tracestate`; None without one."""


class RecordSpan(Protocol):
    """The span of one record in one task."""

    header: bytes
    """The `traceparent` of output that comes of the record."""

    def enter(self) -> None:
        """Make the span the current one of the thread: user code and log lines belong to it until `leave`."""

    def leave(self) -> None:
        """Make the span before it the current one."""

    def end(self, error: str | None = None) -> None:
        """End the span: its results are committed, or with an error they are not. Later calls do nothing."""


class Tracing(Protocol):
    """The traces of a worker."""

    def start(self, parent: Parent, task: TaskId, message: Message) -> RecordSpan | None:
        """Start the span of a record; return None if it is not recorded."""

    def close(self) -> None:
        """Export the spans that have ended."""


def sampled_parent(headers: Headers) -> Parent | None:
    """Return the context of a record; None if it has none, it is not valid, or its producer has not sampled it."""
    header = state = None
    for name, value in headers:
        if name == TRACEPARENT:
            header = value
        elif name == TRACESTATE:
            state = value
    if header is None or len(header) < _FLAGS or header[_FLAGS - 1] not in _SAMPLED:
        return None  # most records: quick
    found = _FORM.fullmatch(header)
    if found is None:
        return None
    return Parent(header, found[1].decode(), found[2].decode(), int(found[3], 16), state)


class TaskTracer:
    """The spans of one task. Only the worker's loop calls it.

    Args:
        tracing: starts spans.
        task: the task's id.
        outbox: the output of the task.
    """

    def __init__(self, tracing: Tracing, task: TaskId, outbox: list[Outgoing]) -> None:
        self._tracing = tracing
        self._task = task
        self._outbox = outbox
        self._open: list[RecordSpan] = []
        self._committing: list[RecordSpan] = []
        #: The context of the span, by the one that its record came with.
        self._known: dict[bytes, bytes] = {}
        # In careful mode rows have an identity, and output keeps the context that the record came with.
        self._rewrites = type(outbox) is list

    def start(self, parent: Parent, message: Message) -> RecordSpan | None:
        """Start the span of the record that is processed next; return None if it is not recorded."""
        span = self._tracing.start(parent, self._task, message)
        if span is None:
            return None
        self._open.append(span)
        self._known.pop(parent.header, None)  # the newest is the last one
        self._known[parent.header] = span.header
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        return span

    def pass_on(self, start: int) -> None:
        """Give the rows of the outbox from index `start` on the contexts of the spans that they come of."""
        known, outbox = self._known, self._outbox
        if not known or not self._rewrites:
            return
        rows = outbox[start:] if start else outbox
        for index in [index for index, row in enumerate(rows, start) if len(row) > _HEADERS_SLOT]:
            row = outbox[index]
            headers = row[_HEADERS_SLOT]
            if headers and any(name == TRACEPARENT and value in known for name, value in headers):
                outbox[index] = (*row[:_HEADERS_SLOT], _with_contexts(headers, known))

    def take(self) -> Sequence[RecordSpan]:
        """Return the spans since the last call: a commit begins, which ends them."""
        self._committing, self._open = self._open, []
        return self._committing

    def abandon(self) -> None:
        """End all spans whose results are not committed: their records are processed again."""
        for span in (*self._committing, *self._open):
            span.end("the worker went back to its last commit before these results were known to be committed")
        self._committing, self._open = [], []
        self._known.clear()


def _with_contexts(headers: Headers, known: dict[bytes, bytes]) -> list[Any]:
    return [
        (name, known.get(value, value) if name == TRACEPARENT and value is not None else value)
        for name, value in headers
    ]
