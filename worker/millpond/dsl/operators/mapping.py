"""The bodies of map, map_values and select_key of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millpond.topology import NodeContext, StreamForward

from .results import as_pair

__all__ = ("MapRecords", "MapValues", "SelectKey")


@dataclass(frozen=True, slots=True)
class MapValues:
    """A body that replaces the value by `mapper(value)`, or `mapper(key, value)` when `with_key`."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        mapper, forward, failed = self.mapper, node.forward, node.failed

        def map_value(key: Any, value: Any, timestamp: int) -> None:
            try:
                mapped = mapper(value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(key, mapped, timestamp)

        def map_value_with_key(key: Any, value: Any, timestamp: int) -> None:
            try:
                mapped = mapper(key, value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(key, mapped, timestamp)

        return map_value_with_key if self.with_key else map_value


@dataclass(frozen=True, slots=True)
class MapRecords:
    """A body that replaces key and value by the pair `mapper(key, value)`."""

    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        mapper, forward, failed = self.mapper, node.forward, node.failed

        def map_record(key: Any, value: Any, timestamp: int) -> None:
            try:
                pair = mapper(key, value)
                new_key, new_value = pair if pair.__class__ is tuple else as_pair("map()", pair)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(new_key, new_value, timestamp)

        return map_record


@dataclass(frozen=True, slots=True)
class SelectKey:
    """A body that replaces the key by `selector(key, value)`."""

    selector: Callable[[Any, Any], Any]

    def bind(self, node: NodeContext) -> StreamForward:
        """Return the function that one task calls for each record."""
        selector, forward, failed = self.selector, node.forward, node.failed

        def select_key(key: Any, value: Any, timestamp: int) -> None:
            try:
                selected = selector(key, value)
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, value, timestamp)
            forward(selected, value, timestamp)

        return select_key
