"""The active task (Kafka Streams' `StreamTask`): one sub-topology over one partition of its inputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millpond.errors import StateError
from millpond.runtime.all_steps import take_all
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition, Remembered
from millpond.topology import SourceNode, Subtopology, TaskId

from .compile import compile_graph
from .context import Outgoing, TaskContext
from .environment import Environment
from .node_figures import NodeFigures, StoreFigures
from .partition_group import PartitionGroup
from .partitioner_check import Sampler, topics_that_meet
from .quiet_windows import QuietInput
from .record_queue import Chunk, RecordQueue
from .sources import make_decoder
from .tracing import RecordSpan, TaskTracer, sampled_parent

__all__ = ("CommitRows", "StreamTask")

_MAX_FLUSHES = 100
#: After so many rounds of punctuations, or rows of output, a call of `process` ends.
_MAX_ROUNDS = 4
_MAX_ROWS = 10_000

#: Changelog rows of one store, as `RecordCollector` sends them: (store, rows).
CommitRows = tuple[Any, list[Outgoing]]


def _never() -> None:
    """Return that nothing is due."""


class StreamTask:
    """Buffers, processes and flushes the records of one task. It does no I/O: its output is in `outbox`.

    Attributes:
        id: the task's id.
        context: the state that its nodes share.
        outbox: output records since the last drain, shared with the context.
        stores: its store instances by name, in the order in which a commit flushes them.
        inputs: its queues, by the topic's name in Kafka.
        group: the choice of the next record.
        commit_needed: whether the task has changes since the last commit.
        processed: number of records processed since the task was created.
        punctuated: number of punctuators fired since then.
        cut_short: whether the last call of `process` ended early, because of punctuations.
        node_figures: figures of its nodes, if `metrics.recording.level` asks for them.
        store_figures: figures of its stores by name, if `metrics.recording.level` asks for them.
        latest_timestamp: timestamp of the last processed record, in epoch milliseconds.
        first_timestamp: timestamp of the first record processed since the last commit began; -1 without one.
    """

    def __init__(  # noqa: PLR0913 - the parts of a task
        self,
        subtopology: Subtopology,
        partition: int,
        stores: Mapping[str, Any],
        global_stores: Mapping[str, Any],
        environment: Environment,
        outbox: list[Outgoing] | None = None,
        remembered: Remembered | None = None,
        topics: Collection[str] | None = None,
    ) -> None:
        self.id: TaskId = TaskId(subtopology.id, partition)
        self.outbox: list[Outgoing] = [] if outbox is None else outbox
        self.context: TaskContext = environment.context(self.id, self.outbox)
        self.stores: dict[str, Any] = dict(stores)
        for builder in subtopology.stores:
            if builder.source_topic is not None and builder.name in self.stores:
                self.stores[builder.name].of_topic = True
        for store in self.stores.values():
            store.attach(self.context)
        self.commit_needed: bool = False
        self.processed: int = 0
        self.punctuated: int = 0
        self.cut_short: bool = False
        self.latest_timestamp: int = -1
        self.first_timestamp: int = -1
        self._bad_first = False
        self._told_expired: dict[str, tuple[int, int]] = {}
        self._environment = environment
        tracing = environment.tracing
        self._tracer = None if tracing is None else TaskTracer(tracing, self.id, self.outbox)
        self._entries, self._hooks = compile_graph(
            subtopology.sources, subtopology.processors, subtopology.sinks,
            self.stores, global_stores, self.context, environment, remembered or Remembered(), subtopology.order,
        )  # fmt: skip
        held_back = self._hooks.held_back
        self._quiet = QuietInput(environment.quiet_log, partition, held_back) if held_back else None
        self.node_figures: list[NodeFigures] = self._hooks.figures
        detailed = environment.metrics.records("DEBUG")
        self.store_figures: dict[str, StoreFigures] = {name: StoreFigures() for name in self.stores if detailed}
        self.inputs: dict[str, RecordQueue] = {}
        self._meeting = topics_that_meet(subtopology)
        self._samplers: dict[str, Sampler] = {}
        self.group: PartitionGroup = PartitionGroup((), environment.max_task_idle_ms)
        for source in subtopology.sources:
            for topic in map(environment.real_topic, source.topics):
                # Topics that are only merged may have different partition counts: some may not have this partition.
                if topics is None or topic in topics:
                    self.add_input(source, topic)

    def add_input(self, source: SourceNode, topic: str) -> None:
        """Add an input: a topic of `source`, by its name in Kafka."""
        decoder = make_decoder(source, topic, self.context, self._environment)
        self.inputs[topic] = RecordQueue(topic, decoder, self._entries[source.name])
        self.group = PartitionGroup(list(self.inputs.values()), self._environment.max_task_idle_ms)
        self._sample(source, topic)

    def _sample(self, source: SourceNode, topic: str) -> None:
        """Look at the first records of an input whose records have to meet those of another topic."""
        environment = self._environment
        groups = [set(map(environment.real_topic, group)) for group in self._meeting]
        others = set[str]().union(*(group for group in groups if topic in group)) - {topic}
        if not others:
            return
        key = source.key if source.key is not None else environment.default_key
        self._samplers[topic] = environment.partitioners.sampler(
            topic,
            others,
            self.id.partition,
            lambda: environment.partition_count(topic),
            partition_by=None if key is None else key.partition_by,
            internal=topic in map(environment.real_topic, environment.internal_topics),
        )

    # Positions

    def resume_at(self, offsets: Mapping[str, tuple[int, OffsetMetadata]]) -> None:
        """Set positions and times from committed offsets, by topic, and drop buffered records.

        Punctuations up to the committed stream time were called before that commit: they are not due again.
        """
        stream_time = -1
        for topic, (offset, metadata) in offsets.items():
            queue = self.inputs[topic]
            queue.clear(offset)
            queue.partition_time = metadata.partition_time
            stream_time = max(stream_time, metadata.partition_time)
        self.context.stream_time = stream_time
        self._hooks.stream_time.resume(stream_time)

    @property
    def remembered_names(self) -> Collection[str]:
        """Names of the integers that the task's processors keep in offset metadata."""
        return self._hooks.memories.keys()

    @property
    def shared_names(self) -> Collection[str]:
        """Keys of the integers that it keeps in offset metadata as Kafka Streams does."""
        return self._hooks.shared.keys()

    def positions(
        self, owner: str, epoch: int, topology: str, changelogs: str, topics: Mapping[str, str]
    ) -> dict[Partition, tuple[int, OffsetMetadata]]:
        """Return the offsets to commit, with metadata, of all input partitions.

        Args:
            owner: the owner to name, and `epoch` its epoch.
            topology: the hash of the topology.
            changelogs: digest of the changelogs' ids.
            topics: digests of the inputs' ids.
        """
        partition = self.id.partition
        processors = {name: value() for name, value in self._hooks.memories.items()}
        shared = {key: value() for key, value in self._hooks.shared.items()}
        return {
            Partition(queue.topic, partition): (
                queue.position,
                OffsetMetadata(
                    owner,
                    epoch,
                    queue.partition_time,
                    processors,
                    topology=topology,
                    changelogs=changelogs,
                    shared=shared,
                    topic=topics.get(queue.topic, "") if queue.position else "",
                ),
            )
            for queue in self.inputs.values()
        }

    # Processing

    def add(self, topic: str, messages: Sequence[Message]) -> None:
        """Buffer the messages that one poll returned for one input."""
        queue = self.inputs[topic]
        before = queue.position
        if self._samplers and topic in self._samplers and self._samplers[topic](messages):
            del self._samplers[topic]
        queue.add(messages)
        if queue.bad_first:
            self._bad_first = True
        if queue.position != before:
            self.commit_needed = True  # no record had a valid timestamp, but the offset moves past them

    def process(self, limit: int, now_ms: int) -> int:
        """Process up to about `limit` records, in timestamp order over the inputs; return how many.

        Punctuators of stream time fire between two records, as soon as they are due: however many records wait. After
        some of them the call ends with `cut_short`, so that output and commits do not wait for those of hours. Where
        steps hold the records of a batch, punctuators wait for the end of the call.

        Raises:
            ProcessingFailed: a handler returned FAIL.
        """
        done = 0
        group = self.group
        before = len(self.outbox)
        next_due = _never if self._hooks.batch_ends else self._hooks.stream_time.next_due
        rounds, self.cut_short = 0, False
        if self._bad_first:
            self._handle_bad_first()
        while done < limit and group.ready(now_ms):
            queue, bound = group.next()
            end = queue.run_end(bound, limit - done)
            chunk = queue.chunks[0]
            if (due := next_due()) is not None:
                end = chunk.until(due, end)
            count = end - chunk.start
            self._run(queue.entry, chunk, end)
            queue.advance(end)
            done += count
            if due is not None and self.context.stream_time >= due:
                self.punctuate_stream_time()
                rounds += 1
                if rounds == _MAX_ROUNDS or len(self.outbox) - before > _MAX_ROWS:
                    self.cut_short = True
                    break
        if done:
            self._end_batch()
            self.commit_needed = True
            self.processed += done
            if self._tracer is not None:
                self._tracer.pass_on(before)
        return done

    @property
    def holds_batches(self) -> bool:
        """Whether steps hold the records of one call of `process` and take them together."""
        return bool(self._hooks.batch_ends)

    def _end_batch(self) -> None:
        """Let operators that hold records of the batch forward them."""
        for end in self._hooks.batch_ends:
            end()

    def _handle_bad_first(self) -> None:
        """Call the handler for the bad records that are next in their input, since they have no timestamp."""
        self._bad_first = False
        for queue in self.inputs.values():
            if queue.bad_first:
                queue.handle_bad_first()
                self.commit_needed = True

    def _run(self, entry: Callable[[Any, Any, int], None], chunk: Chunk, end: int) -> None:
        context = self.context
        stream_time = context.stream_time
        start = chunk.start
        columns: tuple[Sequence[Any], ...] = (chunk.messages, chunk.keys, chunk.values, chunk.timestamps)
        if chunk.headers is not None:
            columns = (*columns, chunk.headers)
        if start or end != chunk.end:
            columns = tuple(column[start:end] for column in columns)
        if chunk.headers is not None and self._tracer is not None:
            self._run_traced(self._tracer, entry, columns)
        elif chunk.headers is not None:
            for message, key, value, timestamp, headers in zip(*columns, strict=True):
                if timestamp > stream_time:
                    context.stream_time = stream_time = timestamp
                context.timestamp = timestamp
                context.message = message
                context.headers = headers
                entry(key, value, timestamp)
            context.headers = None
        else:
            for message, key, value, timestamp in zip(*columns, strict=True):
                if timestamp > stream_time:
                    context.stream_time = stream_time = timestamp
                context.timestamp = timestamp
                context.message = message
                entry(key, value, timestamp)
        context.message = None
        self.latest_timestamp = columns[3][-1]
        if self.first_timestamp < 0:
            self.first_timestamp = columns[3][0]

    def _run_traced(
        self, tracer: TaskTracer, entry: Callable[[Any, Any, int], None], columns: tuple[Sequence[Any], ...]
    ) -> None:
        """Process records as `_run` does, with a span for each that its producer has sampled."""
        context, outbox = self.context, self.outbox
        stream_time = context.stream_time
        for message, key, value, timestamp, headers in zip(*columns, strict=True):
            if timestamp > stream_time:
                context.stream_time = stream_time = timestamp
            context.timestamp = timestamp
            context.message = message
            context.headers = headers
            if not headers or (parent := sampled_parent(headers)) is None:
                entry(key, value, timestamp)
                continue
            before = len(outbox)
            span = tracer.start(parent, message)
            if span is None:
                entry(key, value, timestamp)
                continue
            span.enter()
            try:
                entry(key, value, timestamp)
            finally:
                span.leave()
            tracer.pass_on(before)
        context.headers = None

    # Time

    def punctuate(self, now_ms: int) -> int:
        """Fire punctuators that are due in stream time or wall-clock time; return how many fired."""
        if self._environment.drop_log.pending:
            self._environment.drop_log.report(now_ms)
        if self._quiet is not None:
            self._quiet.check(self.processed, self.group.buffered() > 0, now_ms)
        before = len(self.outbox)
        fired = self.punctuate_stream_time()
        wall_clock = self._hooks.wall_clock.fire(now_ms)
        if wall_clock:
            self._end_batch()
            self.commit_needed = True
            self.punctuated += wall_clock
        if self._tracer is not None:
            self._tracer.pass_on(before)
        return fired + wall_clock

    def punctuate_stream_time(self) -> int:
        """Fire punctuators that are due in stream time; return how many fired."""
        if self.context.stream_time < 0:
            return 0
        fired = self._hooks.stream_time.fire(self.context.stream_time)
        if fired:
            self._end_batch()
            self.commit_needed = True
            self.punctuated += fired
        return fired

    def next_wall_clock_due(self) -> int | None:
        """Return the time at which the next wall-clock punctuator is due, in epoch milliseconds; None without one."""
        return self._hooks.wall_clock.next_due()

    # Commit

    def flush(self) -> list[CommitRows]:
        """Flush caches and buffers in topology order. Output goes to the outbox; return the changelog rows.

        Raises:
            StateError: each flush changes the stores again.
        """
        rows: list[CommitRows] = []
        context = self.context
        before = len(self.outbox)
        # If processors share a store, records from a cache may change a store that was flushed before: then flush
        # again.
        for _ in range(_MAX_FLUSHES):
            for store in self.stores.values():
                changes: list[Outgoing] = []
                if self.store_figures:
                    began = time.perf_counter()
                    store.flush(changes)
                    self.store_figures[store.name].flushed(len(changes), time.perf_counter() - began)
                else:
                    store.flush(changes)
                context.headers = None
                if changes:
                    rows.append((store, changes))
            self._end_batch()
            if not any(map(_dirty_bytes, self.stores.values())):
                self._environment.drop_log.note_expired(self._told_expired, self.stores.values(), self.context.now_ms())
                if self._tracer is not None:
                    self._tracer.pass_on(before)
                return rows
        raise StateError(
            f"task {self.id}: each flush of its stores changes them again, because a processor writes to a store whose "
            f"changes it receives. Let it write to another store."
        )

    def take_input_times(self) -> list[tuple[int, str, int, int]]:
        """Return which records it has processed since the last call.

        Returns:
            The sub-topology, the topic, and the timestamps of the first and the last record in epoch milliseconds, for
            each input with records.
        """
        times = ((queue.topic, queue.take_times()) for queue in self.inputs.values())
        return [(self.id.subtopology, topic, *found) for topic, found in times if found is not None]

    def take_spans(self) -> Sequence[RecordSpan]:
        """Return the spans of records since the last call, for the commit that ends them."""
        return () if self._tracer is None else self._tracer.take()

    def staged_bytes(self) -> int:
        """Return the estimated size of uncommitted state, in bytes."""
        return sum(map(_staged_bytes, self.stores.values()))

    def revert(self) -> None:
        """Drop output and staged state since the last commit."""
        self.outbox.clear()
        self.commit_needed = False
        self.first_timestamp = -1
        for queue in self.inputs.values():
            queue.take_times()
        self.context.commit_requested = False
        self.context.message = None
        self.context.origin = None
        self.context.headers = None
        for store in self.stores.values():
            store.revert()
        if self._tracer is not None:
            self._tracer.abandon()

    def close(self) -> None:
        """Call the processors' `close()`. The stores stay open; the code that opened them closes them."""
        self._environment.drop_log.report()
        if self._quiet is not None:
            self._quiet.forget()
        if self._tracer is not None:
            self._tracer.abandon()
        closers, self._hooks.closers = self._hooks.closers, []
        take_all(closers)


def _dirty_bytes(store: Any) -> int:
    return int(store.dirty_bytes())


def _staged_bytes(store: Any) -> int:
    return int(store.staged_bytes())
