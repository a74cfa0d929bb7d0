"""The bodies of flat_map and flat_map_values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, StreamForward

from .results import as_items, as_pair

__all__ = ("FlatMapRecords", "FlatMapValues")


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    """A body that forwards one record per item of `mapper(value)`, or `mapper(key, value)` when `with_key`.

    All items are collected before the first is forwarded: a generator that fails midway forwards none.
    """

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        mapper, with_key, forward, failed = self.mapper, self.with_key, node.forward, node.failed

        def flat_map_values(key: Any, value: Any, timestamp: int) -> None:
            try:
                items = mapper(key, value) if with_key else mapper(value)
                items = tuple(items) if items.__class__ is list else as_items("flat_map_values()", items)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            for item in items:
                forward(key, item, timestamp)

        return flat_map_values


@dataclass(frozen=True, slots=True)
class FlatMapRecords:
    """A body that forwards one record per pair of `mapper(key, value)`, after all pairs are collected."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        mapper, forward, failed = self.mapper, node.forward, node.failed

        def flat_map(key: Any, value: Any, timestamp: int) -> None:
            try:
                items = mapper(key, value)
                pairs = [
                    pair if pair.__class__ is tuple and len(pair) == 2 else as_pair("flat_map()", pair)
                    for pair in (items if items.__class__ is list else as_items("flat_map()", items))
                ]
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            for new_key, new_value in pairs:
                forward(new_key, new_value, timestamp)

        return flat_map
