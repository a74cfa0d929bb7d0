"""The body of group_by of a table: rows under other keys, to be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, TableForward

from .results import as_pair

__all__ = ("RegroupTable",)


@dataclass(frozen=True, slots=True)
class RegroupTable:
    """A body that forwards `(new, old)` values under the keys of `selector(key, value)`.

    If both have the same key, they are one record, so that no intermediate result is visible (KIP-904). Else the old
    value goes first, to be subtracted, and then the new one, to be added. A pair
    whose selected key or value is None is left out.
    """

    selector: Callable[[Any, Any], tuple[Any, Any]]
    versioned: bool = False
    """Whether the table above is versioned: then updates that are not the latest of their key are ignored (KIP-914)."""

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        selector, forward, failed = self.selector, node.forward, node.failed

        def regroup(key: Any, new: Any, old: Any, timestamp: int) -> None:
            new_key = new_value = old_key = old_value = None
            try:
                if new is not None:
                    pair = selector(key, new)
                    new_key, new_value = pair if pair.__class__ is tuple else as_pair("group_by()", pair)
                if old is not None:
                    pair = selector(key, old)
                    old_key, old_value = pair if pair.__class__ is tuple else as_pair("group_by()", pair)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            adds = new_key is not None and new_value is not None
            subtracts = old_key is not None and old_value is not None
            if adds and subtracts and new_key == old_key:
                forward(old_key, (new_value, old_value), timestamp)
                return
            if subtracts:
                forward(old_key, (None, old_value), timestamp)
            if adds:
                forward(new_key, (new_value, None), timestamp)

        return _if_latest(node, regroup) if self.versioned else regroup


def _if_latest(node: NodeContext, regroup: TableForward) -> TableForward:
    task = node.task

    def regroup_if_latest(key: Any, new: Any, old: Any, timestamp: int) -> None:
        if task.latest:
            regroup(key, new, old, timestamp)

    return regroup_if_latest
