"""The arguments of `KTable.suppress()` (KIP-328), and the logic of the resulting table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, cast

from millpond.calls import checked_call
from millpond.checks import kind_of
from millpond.dsl.operators.suppression import SuppressedLookup, SuppressTable
from millpond.errors import TopologyError
from millpond.serdes import Serde, Windowed
from millpond.state import TimeOrderedBufferBuilder
from millpond.topology import Body, StoreBuilder

from .durations import milliseconds
from .graph import GraphNode
from .tables import Parent, View

__all__ = ("Suppressed", "SuppressedTable", "until_time_limit", "until_window_closes", "windows_open_ms")

K = TypeVar("K")


@dataclass(frozen=True)
class Suppressed(Generic[K]):
    """The time for which changes are held back. `until_window_closes()` and `until_time_limit()` return one."""

    final: bool
    """Whether only the final result of a window is sent."""
    wait_ms: int
    """Milliseconds of stream time after the first change of a key; for final results the grace counts instead."""
    max_records: int | None
    """How many keys may be held back; None for no limit."""
    max_bytes: int | None
    """How many bytes of keys and values may be held back; None for no limit."""
    emit_when_full: bool
    """Whether a full buffer sends its oldest change early, instead of stopping the worker."""
    logging: bool | Mapping[str, str]
    """Whether the buffer has a changelog, or that topic's configuration."""


@checked_call
def until_window_closes(
    *, max_records: int | None = None, max_bytes: int | None = None, logging: bool | Mapping[str, str] = True
) -> Suppressed[Windowed[Any]]:
    """Send only the final result of each window, when stream time has reached its end plus grace.

    Args:
        max_records: stop the worker instead of holding back more results than this; default: no limit.
        max_bytes: stop the worker instead of holding back more bytes than this; default: no limit.
        logging: whether the buffer has a changelog, or that topic's configuration; without a changelog, the buffer's
            content is lost with the worker's disk.

    Raises:
        TopologyError: a limit is negative, or logging is neither a flag nor a configuration.
    """
    _check(max_records, max_bytes, logging)
    return Suppressed(
        final=True, wait_ms=0, max_records=max_records, max_bytes=max_bytes, emit_when_full=False, logging=logging
    )


@checked_call
def until_time_limit(
    wait: timedelta,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    when_full: Literal["emit", "stop"] = "emit",
    logging: bool | Mapping[str, str] = True,
) -> Suppressed[Any]:
    """Send at most one change per key and `wait`.

    Args:
        wait: how long, in stream time from the key's first change, changes are collected; only the last one is sent.
        max_records: how many keys may be held back; default: no limit.
        max_bytes: how many bytes may be held back; default: no limit.
        when_full: `emit` sends the oldest change early, `stop` stops the worker.
        logging: whether the buffer has a changelog, or that topic's configuration; without a changelog, the buffer's
            content is lost with the worker's disk.

    Raises:
        TopologyError: the duration is not a timedelta, a duration or limit is negative, or logging is neither a flag
            nor a configuration.
    """
    _check(max_records, max_bytes, logging)
    return Suppressed(
        final=False,
        wait_ms=milliseconds(wait, "wait"),
        max_records=max_records,
        max_bytes=max_bytes,
        emit_when_full=when_full == "emit",
        logging=logging,
    )


def _check(max_records: int | None, max_bytes: int | None, logging: object) -> None:
    if not isinstance(logging, bool | Mapping):
        raise TopologyError(
            "logging= takes True, False, or the changelog topic's configuration as a dictionary, not "
            f"{kind_of(logging)}."
        )
    for name, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
        if limit is not None and limit < 0:
            raise TopologyError(f"{name}={limit} is negative; leave it out for no limit.")


def windows_open_ms(node: GraphNode) -> int:
    """Return `GraphNode.open_ms` of the windowed aggregation above a node; of several, the longest.

    Raises:
        TopologyError: at least one path has no windowed aggregation.
    """
    found = _longest_open_ms(node)
    if found is None:
        raise TopologyError(
            f"until_window_closes() needs a windowed table, but '{node.name}' does not come from a windowed "
            "aggregation; use until_time_limit()."
        )
    return found


def _longest_open_ms(node: GraphNode) -> int | None:
    if node.open_ms is not None:
        return node.open_ms
    above = [_longest_open_ms(parent) for parent in node.parents]
    if not above or None in above:
        return None
    return max(cast("list[int]", above))


class SuppressedTable:
    """The logic of a table whose changes are held back."""

    def __init__(  # noqa: PLR0913 - the table above, and its buffer
        self,
        parent: Parent,
        suppressed: Suppressed[Any],
        store: str,
        open_ms: int,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
    ) -> None:
        self._parent = parent
        self._suppressed = suppressed
        self._store = store
        self._open_ms = open_ms
        self._key = key
        self._value = value
        # Until a change is sent, joins see the value before it: so old values have to be known.
        parent.send_old_values(materialize=True)

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        return self._parent.send_old_values(materialize=materialize)

    def view(self) -> View:
        """See `TableLogic`."""
        above = self._parent.view()
        return View(SuppressedLookup(self._store, above.lookup), (self._store, *above.stores))

    def body(self) -> Body:
        """Return the body of the table's node."""
        given = self._suppressed
        wait_ms = self._open_ms if given.final else given.wait_ms
        return SuppressTable(
            self._store, given.final, wait_ms, given.max_records, given.max_bytes, given.emit_when_full
        )

    def store(self) -> StoreBuilder:
        """Return the builder of the table's buffer."""
        logging = self._suppressed.logging
        return TimeOrderedBufferBuilder(
            name=self._store,
            key=self._key,
            value=self._value,
            logging=logging if isinstance(logging, bool) else True,
            log_config={} if isinstance(logging, bool) else logging,
            count_bytes=self._suppressed.max_bytes is not None,
        )
