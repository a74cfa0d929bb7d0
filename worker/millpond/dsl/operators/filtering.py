"""The body of filter and filter_not of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, StreamForward

__all__ = ("FilterStream",)


@dataclass(frozen=True, slots=True)
class FilterStream:
    """A body that forwards the records for which `predicate(key, value)` is true, or false when `negate`."""

    predicate: Callable[[Any, Any], object]
    negate: bool = False

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        predicate, forward, failed = self.predicate, node.forward, node.failed

        def keep(key: Any, value: Any, timestamp: int) -> None:
            try:
                wanted = predicate(key, value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if wanted:
                forward(key, value, timestamp)

        def drop(key: Any, value: Any, timestamp: int) -> None:
            try:
                unwanted = predicate(key, value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if not unwanted:
                forward(key, value, timestamp)

        return drop if self.negate else keep
