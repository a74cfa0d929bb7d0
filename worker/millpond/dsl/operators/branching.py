"""The body of `KStream.split()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, StreamForward

__all__ = ("Branch",)


@dataclass(frozen=True, slots=True)
class Branch:
    """A body that forwards each record to the first branch whose predicate is true, else to the default branch."""

    branches: tuple[tuple[Callable[[Any, Any], object], str], ...]
    default: str | None

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        branches = tuple((predicate, node.child(child)) for predicate, child in self.branches)
        default = None if self.default is None else node.child(self.default)
        failed = node.failed

        def divide(key: Any, value: Any, timestamp: int) -> None:
            chosen = default
            try:
                for predicate, child in branches:
                    if predicate(key, value):
                        chosen = child
                        break
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            if chosen is not None:
                chosen(key, value, timestamp)

        return divide
