"""Global stores: every worker fills them from all partitions of their topic, before it starts and ever after.

They are outside the transactions: what is committed in the topic is applied as it arrives, and written to the state
file together with the position reached (semantics.md 3.6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millpond.topology import GlobalStore, TaskId

from .compile import compile_graph
from .context import TaskContext
from .environment import Environment
from .ownership import Partition
from .sources import make_decoder

__all__ = ("GlobalStateUpdater",)


class GlobalStateUpdater:
    """Applies the records of one global store's topic to the store.

    Attributes:
        store: the store instance.
        topic: the real topic.
        context: what its nodes share.
        positions: next offset per partition.
    """

    def __init__(self, definition: GlobalStore, store: Any, backend: Any, environment: Environment) -> None:
        self.store = store
        self.backend = backend
        self.topic = definition.source.topics[0]
        self.positions: dict[int, int] = {}
        self.context = TaskContext(
            TaskId(definition.id, 0), environment.application_id, environment.settings, [], environment.now_ms
        )
        store.attach(self.context)
        entries, self._hooks = compile_graph(
            (definition.source,), (definition.processor,), (), {store.name: store}, {}, self.context, environment, {}
        )
        self._entry = entries[definition.source.name]
        self._decoder = make_decoder(definition.source, self.topic, self.context, environment)

    def start_of(self, partition: int) -> int | None:
        """The position the state file knows, None when it has none."""
        offset = self.backend.offset(self.store.name, partition)
        return None if offset is None else int(offset)

    def apply(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Process the records and write them with their position."""
        context = self.context
        chunk = self._decoder.decode(messages, context.stream_time)
        for _, bad in chunk.bad or ():
            self._decoder.on_bad_record(bad)
        # There is no transaction to send dead letters in.
        context.outbox.clear()
        entry = self._entry
        for message, key, value, timestamp in zip(
            chunk.messages, chunk.keys, chunk.values, chunk.timestamps, strict=True
        ):
            context.message = message
            context.timestamp = timestamp
            context.stream_time = max(context.stream_time, timestamp)
            context.headers = message.headers()  # type: ignore[assignment]
            entry(key, value, timestamp)
        context.message = None
        context.headers = None
        self.positions[partition.partition] = chunk.next_offset
        self.write()

    def write(self) -> None:
        """Write what is staged with the positions reached."""
        store = self.store
        store.flush([])
        rows = store.seal()
        self.backend.write(
            [(store.name, store.partition, rows)],
            {(store.name, partition): (offset, store.metadata()) for partition, offset in self.positions.items()},
        )
        store.committed()

    def close(self) -> None:
        """Call the processor's `close()`."""
        for closer in self._hooks.closers:
            closer()


def by_name(updaters: Sequence[GlobalStateUpdater]) -> Mapping[str, Any]:
    """The global stores by name."""
    return {updater.store.name: updater.store for updater in updaters}
