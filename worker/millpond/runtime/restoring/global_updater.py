"""One global store: the records of its topic, from all partitions, become its rows."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millpond.runtime.offsets.completeness import Completeness, Moment
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.processing.compile import compile_graph
from millpond.runtime.processing.context import TaskContext
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.sources import make_decoder
from millpond.runtime.topics.identity import TopicIdentity
from millpond.snapshots.rows import GLOBAL_PARTITION
from millpond.state.backend import Rows
from millpond.state.formats import partition_prefix
from millpond.state.provenance import Provenance
from millpond.topology import GlobalStore, TaskId

from .global_tables import global_layout, reason_not_plain
from .reusable_state import ChangelogFacts, LocalRows, LocalRowsVerdict, judge, longest_unwritten_ms, oldest_ms
from .snapshot_choice import WantedStore

__all__ = ("GlobalStateUpdater",)

log = logging.getLogger(__name__)


class GlobalStateUpdater:
    """Applies the records of one global store's topic to the store.

    Attributes:
        id: the number that its nodes have in place of a task's.
        store: the store instance.
        topic: the real topic.
        context: what its nodes share.
        positions: next offset per partition.
        completeness: until when the store has everything, per partition.
        facts: what the topic is.
    """

    def __init__(self, definition: GlobalStore, builder: Any, backend: Any, environment: Environment) -> None:
        """Make the store.

        Args:
            definition: from the topology.
            builder: of the store, complete.
            backend: where its rows are.
            environment: of the worker.
        """
        self.id = TaskId(definition.id, 0)
        self.store = store = builder.build(GLOBAL_PARTITION, backend, None)
        self.backend = backend
        plain = reason_not_plain(definition, environment.default_timestamp_extractor) is None
        defaults = environment.default_key, environment.default_value
        self._layout = global_layout(definition, *defaults) if plain else None
        self.topic = definition.source.topics[0]
        self.positions: dict[int, int] = {}
        self.completeness: dict[int, Completeness] = {}
        self.facts = TopicIdentity("", None)
        self._stamped_ms = 0
        self.context = TaskContext(self.id, environment.application_id, environment.settings, [], environment.now_ms)
        store.attach(self.context)
        entries, self._hooks = compile_graph(
            (definition.source,), (definition.processor,), (), {store.name: store}, {}, self.context, environment, {},
            (definition.source.name, definition.processor.name),
        )  # fmt: skip
        self._entry = entries[definition.source.name]
        self._decoder = make_decoder(definition.source, self.topic, self.context, environment)

    def begin(
        self, ranges: Mapping[Partition, tuple[int, int]], facts: TopicIdentity, asked: Moment, now_ms: int
    ) -> None:
        """Find the positions to read from, as far as the state file's rows are of this topic and new enough.

        Args:
            ranges: where the partitions begin and end.
            facts: what the topic is.
            asked: when brokers were asked for that.
            now_ms: the wall clock, in epoch milliseconds.
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
                        "global store %s: the local rows of partition %d %s; reading %s from the beginning",
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
        """What is to be read of the topic, as far as snapshots may have it.

        Args:
            ranges: where the partitions begin and end, as for `begin`.
        """
        if self._layout is None:
            return []
        return [
            WantedStore(
                self.store.name, self._layout, self.topic, partition.partition, len(ranges), ChangelogFacts(*found, self.facts),
                self.backend.offset(self.store.name, partition.partition), is_input=True,
            )
            for partition, found in ranges.items()
        ]  # fmt: skip

    @property
    def as_of_ms(self) -> int:
        """Until when the store has everything, in epoch milliseconds."""
        return min(each.as_of_ms for each in self.completeness.values())

    def stamp(self) -> None:
        """Write anew until when the rows on disk have everything, where that is long ago and nothing has changed."""
        if self.as_of_ms - self._stamped_ms > longest_unwritten_ms(self.facts):
            self.write()

    def drop(self) -> None:
        """Forget all rows, which are of all partitions together, and so are the offsets: all of them at once."""
        name = self.store.name
        rows = Rows((), [(partition_prefix(GLOBAL_PARTITION), partition_prefix(GLOBAL_PARTITION + 1))])
        self.backend.write(
            [(name, GLOBAL_PARTITION, rows)], {(name, number): (None, b"") for number in self.backend.partitions(name)}
        )
        self.store.revert()

    def too_old(self, partition: int, now_ms: int) -> bool:
        """Whether deletions may be missing from what is read of a partition now: it was not read for too long."""
        completeness = self.completeness[partition]
        return completeness.at is not None and now_ms >= oldest_ms(completeness.as_of_ms, self.facts)

    def reached_end(self, partition: int, offset: int) -> None:
        """Nothing is in the partition after `offset`."""
        self.positions[partition] = max(offset, self.positions[partition])
        self.completeness[partition].advance(self.positions[partition])

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
        self.completeness[partition.partition].advance(chunk.next_offset)
        self.write()

    def write(self) -> None:
        """Write what is staged with the positions reached."""
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
        for closer in self._hooks.closers:
            closer()
