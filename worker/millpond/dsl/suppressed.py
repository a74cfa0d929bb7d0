"""What suppress() takes, and the table it makes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, cast

from millpond.calls import checked_call
from millpond.dsl.operators.suppression import SuppressedLookup, SuppressTable
from millpond.errors import TopologyError
from millpond.serdes import Serde, Windowed
from millpond.state import TimeOrderedBufferBuilder
from millpond.topology import Body, StoreBuilder

from .durations import milliseconds
from .graph import GraphNode
from .tables import Parent, View

__all__ = ("Suppressed", "SuppressedTable", "until_time_limit", "until_window_closes", "windows_grace_ms")

K = TypeVar("K")


@dataclass(frozen=True)
class Suppressed(Generic[K]):
    """When held-back changes are sent on. Made by `until_window_closes()` and `until_time_limit()`."""

    final: bool
    """Whether only the final result of a window is wanted."""
    wait_ms: int
    """How long after the first change of a key; windows wait for their grace instead."""
    max_records: int | None
    max_bytes: int | None
    emit_when_full: bool
    """Whether a full buffer sends its oldest change early, instead of stopping the worker."""
    logging: bool


@checked_call
def until_window_closes(
    *, max_records: int | None = None, max_bytes: int | None = None, logging: bool = True
) -> Suppressed[Windowed[Any]]:
    """Send only the final result of each window: once stream time is past its end plus grace.

    Args:
        max_records: stop the worker, rather than hold back more windows than this.
        max_bytes: stop the worker, rather than hold back more bytes than this.
        logging: whether the buffer has a changelog; without one, what it holds is lost with its disk.

    Raises:
        TopologyError: a limit is not positive.
    """
    _check_limits(max_records, max_bytes)
    return Suppressed(True, 0, max_records, max_bytes, False, logging)


@checked_call
def until_time_limit(
    wait: timedelta,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    when_full: Literal["emit", "stop"] = "emit",
    logging: bool = True,
) -> Suppressed[Any]:
    """Send at most one change per key and `wait`, counted in stream time from the key's first one.

    Args:
        wait: for how long to collect the changes of a key; the last of them is sent.
        max_records: how many keys may be held back.
        max_bytes: how many bytes may be held back.
        when_full: send the oldest change early, or stop the worker.
        logging: whether the buffer has a changelog; without one, what it holds is lost with its disk.

    Raises:
        TopologyError: the duration or a limit is not usable.
    """
    _check_limits(max_records, max_bytes)
    return Suppressed(False, milliseconds(wait, "wait"), max_records, max_bytes, when_full == "emit", logging)


def _check_limits(max_records: int | None, max_bytes: int | None) -> None:
    for name, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
        if limit is not None and limit < 0:
            raise TopologyError(f"{name}={limit} is negative; leave it out for no limit.")


def windows_grace_ms(node: GraphNode) -> int:
    """The grace of the windowed aggregation a node's records come from; the longest one of several.

    Raises:
        TopologyError: there is none.
    """
    found = _grace(node)
    if found is None:
        raise TopologyError(
            f"until_window_closes() needs a windowed table, but '{node.name}' does not come from a windowed "
            "aggregation; use until_time_limit()."
        )
    return found


def _grace(node: GraphNode) -> int | None:
    if node.grace_ms is not None:
        return node.grace_ms
    above = [_grace(parent) for parent in node.parents]
    if not above or None in above:
        return None
    return max(cast("list[int]", above))


class SuppressedTable:
    """The logic of a table whose changes are held back."""

    def __init__(
        self,
        parent: Parent,
        suppressed: Suppressed[Any],
        store: str,
        grace_ms: int,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
    ) -> None:
        self._parent = parent
        self._suppressed = suppressed
        self._store = store
        self._grace_ms = grace_ms
        self._key = key
        self._value = value
        # The value before what is held back stays visible to joins, so it has to be known.
        parent.send_old_values(materialize=True)

    def send_old_values(self, *, materialize: bool) -> bool:
        """See `TableLogic`."""
        return self._parent.send_old_values(materialize=materialize)

    def view(self) -> View:
        """See `TableLogic`."""
        above = self._parent.view()
        return View(SuppressedLookup(self._store, above.lookup), (self._store, *above.stores))

    def body(self) -> Body:
        """What its node does."""
        given = self._suppressed
        wait_ms = self._grace_ms if given.final else given.wait_ms
        return SuppressTable(
            self._store, given.final, wait_ms, given.max_records, given.max_bytes, given.emit_when_full
        )

    def store(self) -> StoreBuilder:
        """Its buffer."""
        return TimeOrderedBufferBuilder(
            name=self._store,
            key=self._key,
            value=self._value,
            logging=self._suppressed.logging,
            count_bytes=self._suppressed.max_bytes is not None,
        )
