"""The updates of one global store from all partitions of its topic."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millpond.runtime.all_steps import take_all
from millpond.runtime.offsets.completeness import Completeness, Moment
from millpond.runtime.offsets.metadata import Partition, Remembered
from millpond.runtime.processing.compile import compile_graph
from millpond.runtime.processing.context import TaskContext
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.sources import make_decoder
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.layouts import GLOBAL_PARTITION
from millpond.state.backend import Rows
from millpond.state.formats import partition_prefix
from millpond.state.provenance import Provenance
from millpond.topology import GlobalStore, TaskId

from .global_tables import global_layout, reason_not_plain
from .reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge, longest_unwritten_ms, oldest_ms
from .snapshot_choice import WantedStore

__all__ = ("GlobalStateUpdater",)

log: logging.Logger = logging.getLogger(__name__)


class GlobalStateUpdater:
    """The updater of one global store, as `GlobalStateUpdateTask` in Kafka Streams.

    Attributes:
        id: the id that its nodes have in place of a task's.
        store: the store instance.
        topic: real name of the topic.
        context: the context that its nodes share.
        positions: next offset by partition.
        completeness: the moment up to which the store is complete, by partition.
        facts: identity of the topic.
    """

    def __init__(self, definition: GlobalStore, builder: Any, backend: Any, environment: Environment) -> None:
        """Build the store.

        Args:
            definition: the definition of the store in the topology.
            builder: the builder of the store, with the default serdes filled in.
            backend: the backend of its rows.
            environment: the environment of the worker.
        """
        self.id: TaskId = TaskId(definition.id, 0)
        store = builder.build(GLOBAL_PARTITION, backend, None)
        store.of_topic = True
        self.store: Any = store
        self.backend = backend
        plain = reason_not_plain(definition, environment.default_timestamp_extractor) is None
        defaults = environment.default_key, environment.default_value
        self._layout = global_layout(definition, *defaults) if plain else None
        self.topic: str = definition.source.topics[0]
        self.positions: dict[int, int] = {}
        self.completeness: dict[int, Completeness] = {}
        self.facts: TopicIdentity = TopicIdentity("", None)
        self._stamped_ms = 0
        self.context: TaskContext = environment.context(self.id, [])
        store.attach(self.context)
        entries, self._hooks = compile_graph(
            (definition.source,), (definition.processor,), (), {store.name: store}, {}, self.context, environment,
            Remembered(), (definition.source.name, definition.processor.name),
        )  # fmt: skip
        self._entry = entries[definition.source.name]
        self._decoder = make_decoder(definition.source, self.topic, self.context, environment)

    def begin(
        self, ranges: Mapping[Partition, tuple[int, int]], facts: TopicIdentity, asked: Moment, now_ms: int
    ) -> None:
        """Set the positions to read from. Rows on disk are kept if they are from this topic and new enough.

        Args:
            ranges: first and end offset of the partitions.
            facts: identity of the topic.
            asked: the time of the request for the ranges.
            now_ms: the wall-clock time, in epoch milliseconds.
        """
        self.facts = facts
        name, backend = self.store.name, self.backend
        logs = {partition.partition: ChangelogFacts(first, end, facts) for partition, (first, end) in ranges.items()}
        for number, each in logs.items():
            offset = backend.offset(name, number)
            if offset is not None:
                known = backend.provenance(name, number) or Provenance("", backend.last_used_ms or 0)
                verdict = judge(LocalRows(offset, known), each, now_ms)
                if verdict.trust is not LocalRowsVerdict.KEEP:
                    log.warning(
                        "global store %s: the local rows of partition %d %s; rebuilding from the beginning of %s",
                        name, number, verdict.reason, self.topic,
                    )  # fmt: skip
                    self.drop()
                    break
        for number, each in logs.items():
            offset = backend.offset(name, number)
            known = backend.provenance(name, number) or Provenance("", backend.last_used_ms or 0)
            self.positions[number] = each.first if offset is None else offset
            completeness = Completeness(asked.wall_ms if offset is None else known.as_of_ms)
            completeness.record_end(asked, each.end, self.positions[number])
            self.completeness[number] = completeness
        self._stamped_ms = self.as_of_ms

    def wanted(self, ranges: Mapping[Partition, tuple[int, int]]) -> list[WantedStore]:
        """Return the partitions that a snapshot may restore; none if the store is not a plain table.

        Args:
            ranges: first and end offset of the partitions, as for `begin`.
        """
        if self._layout is None:
            return []
        return [
            WantedStore(
                self.store.name, self._layout, self.topic, partition.partition, len(ranges),
                ChangelogFacts(*range_, self.facts), self.backend.offset(self.store.name, partition.partition),
                is_input=True,
            )
            for partition, range_ in ranges.items()
        ]  # fmt: skip

    @property
    def as_of_ms(self) -> int:
        """The time up to which the store is complete, in epoch milliseconds."""
        return min(each.as_of_ms for each in self.completeness.values())

    def stamp(self) -> None:
        """Update the time up to which rows on disk are complete, if that time is old and no rows were written since."""
        if self.as_of_ms - self._stamped_ms > longest_unwritten_ms(self.facts):
            self.write()

    def drop(self) -> None:
        """Delete the rows and offsets of all partitions, since rows do not contain the partition of their record."""
        name = self.store.name
        rows = Rows((), [(partition_prefix(GLOBAL_PARTITION), partition_prefix(GLOBAL_PARTITION + 1))])
        self.backend.write(
            [(name, GLOBAL_PARTITION, rows)], {(name, number): (None, b"") for number in self.backend.partitions(name)}
        )
        self.store.revert()

    def too_old(self, partition: int, now_ms: int) -> bool:
        """Return whether a partition was not read for so long that deletions may be missing from it."""
        completeness = self.completeness[partition]
        return completeness.at is not None and now_ms >= oldest_ms(completeness.as_of_ms, self.facts)

    def reached_end(self, partition: int, offset: int) -> None:
        """Record that a partition is read to its end, as the broker reports."""
        self.positions[partition] = max(offset, self.positions[partition])
        self.completeness[partition].advance(self.positions[partition])

    def apply(self, partition: Partition, messages: Sequence[Message]) -> None:
        """Process records and write the rows with the positions reached."""
        context = self.context
        chunk = self._decoder.decode(messages, context.stream_time)
        for _, bad in chunk.bad or ():
            self._decoder.on_bad_record(bad)
        # Dead letters need a transaction, and global stores have none.
        context.outbox.clear()
        entry = self._entry
        headers: Sequence[Any] = chunk.headers or [None] * len(chunk.messages)
        for message, key, value, timestamp, of_record in zip(
            chunk.messages, chunk.keys, chunk.values, chunk.timestamps, headers, strict=True
        ):
            context.message = message
            context.timestamp = timestamp
            context.stream_time = max(context.stream_time, timestamp)
            context.headers = of_record
            entry(key, value, timestamp)
        context.message = None
        context.headers = None
        self.positions[partition.partition] = chunk.next_offset
        self.completeness[partition.partition].advance(chunk.next_offset)
        self.write()

    def write(self) -> None:
        """Write the staged rows with the positions reached."""
        self._stamped_ms = self.as_of_ms
        store = self.store
        store.flush([])
        rows = store.seal()
        self.backend.write(
            [(store.name, store.partition, rows)],
            {(store.name, partition): (offset, store.metadata()) for partition, offset in self.positions.items()},
            {
                (store.name, partition): Provenance(self.facts.id, each.as_of_ms)
                for partition, each in self.completeness.items()
            },
        )
        store.committed()

    def close(self) -> None:
        """Call the processor's `close()`."""
        take_all(self._hooks.closers)
