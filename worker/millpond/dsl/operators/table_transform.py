"""The body and the lookup of transform_values of a table."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from millpond.errors import TopologyError
from millpond.topology import NodeContext, RecordContext, TableForward
from millpond.topology.transformer import (
    TransformerContext,
    ValueTransformerWithKey,
    ValueTransformerWithKeySupplier,
)

from .guard import FATAL
from .lookup import Get, Lookup, TimedGet
from .versioned.updates import update_functions

__all__ = ("TransformTableValues", "TransformedLookup")

Transform = Callable[[Any, Any], Any]
"""f(key, value) -> new value."""


def _started(supplier: Callable[[], object], node: NodeContext) -> tuple[TransformerContext, Transform]:
    """Return the context and the function of a new transformer, which is initialised and closed with the task."""
    transformer = supplier()
    if not isinstance(transformer, ValueTransformerWithKey):
        raise TopologyError(
            f"The supplier of '{node.name}' made a {type(transformer).__name__}; it has to make a new "
            "ValueTransformerWithKey each time it is called."
        )
    context = TransformerContext(node)
    with contextlib.suppress(AttributeError):  # a class may have slots, or a property of this name
        transformer.context = context

    def init() -> None:
        transformer.init(context)
        node.on_close(transformer.close)

    node.on_init(init)
    return context, transformer.transform


@dataclass(frozen=True, slots=True)
class TransformTableValues:
    """A body that maps each value by a transformer, which also gets the None of a deletion."""

    supplier: ValueTransformerWithKeySupplier[Any, Any, Any]
    store: str | None
    send_old: bool
    reads_origin: ClassVar[bool] = True

    def bind(self, node: NodeContext) -> TableForward:
        """Return the function that one task calls for each change."""
        _, transform = _started(self.supplier, node)
        if self.store is not None:
            return self._materialized(node, self.store, transform)
        send_old, task = self.send_old, node.task
        forward, failed = node.forward, node.failed

        def transform_change(key: Any, new: Any, old: Any, timestamp: int) -> None:
            outer, task.timestamp = task.timestamp, timestamp
            try:
                mapped = transform(key, new)
                before = transform(key, old) if send_old else None
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            finally:
                task.timestamp = outer
            forward(key, mapped, before, timestamp)

        return transform_change

    def _materialized(self, node: NodeContext, name: str, transform: Transform) -> TableForward:
        task, store = node.task, node.store(name)
        serialize, entry, failed = store.serialize_key, store.entry, node.failed
        stage, forward = update_functions(node, store)
        forwarding = not store.caching
        if store.caching:
            store.on_flush(forward)
        needs_old = self.send_old or store.caching

        def transform_and_store(key: Any, new: Any, _old: Any, timestamp: int) -> None:
            outer, task.timestamp = task.timestamp, timestamp
            try:
                mapped = transform(key, new)
                raw = serialize(key)
                before = entry(raw)[0] if needs_old else None
                stage(raw, key, mapped, timestamp, before)
            except FATAL:
                raise
            except Exception as error:  # noqa: BLE001 - user code raises anything
                return failed(error, key, new, timestamp)
            finally:
                task.timestamp = outer
            if forwarding:
                forward(key, mapped, before, timestamp)

        return transform_and_store


@dataclass(frozen=True, slots=True)
class TransformedLookup:
    """A lookup that reads the table above and maps its values, by a transformer of its own."""

    above: Lookup
    supplier: ValueTransformerWithKeySupplier[Any, Any, Any]

    def bind(self, node: NodeContext) -> Get:
        """Return the function with which one task looks up a key."""
        get = self.bind_timed(node)
        return lambda key: get(key)[0]

    def bind_timed(self, node: NodeContext) -> TimedGet:
        """Return the function with which one task looks up a key and the timestamp of its value."""
        above, map_found = self.above.bind_timed(node), self.mapped(node)

        def get(key: Any) -> tuple[Any, int]:
            value, timestamp = above(key)
            if value is None:
                timestamp = -1
            return map_found(key, value, timestamp), timestamp

        return get

    def mapped(self, node: NodeContext) -> Callable[[Any, Any, int], Any]:
        """Return f(key, value of the table above, its timestamp) -> the mapped value, for one task."""
        context, transform = _started(self.supplier, node)
        task = node.task

        def map_found(key: Any, value: Any, timestamp: int) -> Any:
            before = task.timestamp, task.headers
            task.timestamp, task.headers = timestamp, None
            context.looked_up = RecordContext(None, -1, -1, timestamp, None)
            try:
                return transform(key, value)
            finally:
                context.looked_up = None
                task.timestamp, task.headers = before

        return map_found
