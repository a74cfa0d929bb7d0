"""The TopologyTestDriver: the tasks, stores and serdes of the runtime, without a broker.

As in Kafka Streams, the whole topology is one task with one partition. Each piped record is processed to the end: due
punctuations are called, everything is committed, and records that were written to a topic that the topology reads are
processed in turn. So caches are flushed after every record. Wall-clock time passes only when the test advances it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from millpond.calls import checked, checked_class
from millpond.dsl.durations import milliseconds
from millpond.dsl.operators.window_join.times import EMIT_INTERVAL as JOIN_EMIT_INTERVAL
from millpond.dsl.operators.windowing.finals import EMIT_INTERVAL
from millpond.errors import TopologyError
from millpond.runtime.all_steps import take_all
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.completeness import Moment
from millpond.runtime.offsets.metadata import OffsetMetadata, Partition
from millpond.runtime.processing.context import Outgoing
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.processing.java_heap import JavaHeap
from millpond.runtime.processing.record_queue import RecordQueue
from millpond.runtime.processing.stream_task import StreamTask
from millpond.runtime.restoring.global_updater import GlobalStateUpdater
from millpond.runtime.topics.identity import TopicIdentity
from millpond.runtime.topics.plan import changelog_topic
from millpond.serdes import Serde
from millpond.state import (
    KeyValueStore,
    MemoryBackend,
    SessionStore,
    TimestampedKeyValueStore,
    TimestampedWindowStore,
    VersionedKeyValueStore,
    WindowStore,
)
from millpond.state.backend import OrderedBackend
from millpond.topology import Subtopology, TaskId, Topology, is_repartition_topic
from millpond.topology.settings.checking import check_configured, check_topology
from millpond.topology.user_metrics import UserMetrics

from .stores import KeyValueStoreFacade, WindowStoreFacade, kind_of_store
from .topics import Instant, RawRecord, TestInputTopic, TestOutputTopic, epoch_ms

__all__ = ("TopologyTestDriver",)

#: Records that one input record may make the topology write to a topic that it reads.
_MAX_RETURNED = 50_000
#: The most records that steps over batches get together, as after one poll of a worker.
_BATCH = 1_000

_NO_TOPIC = TopicIdentity(id="", delete_retention_ms=None)
"""The identity of a topic that is on no broker."""

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


@checked
@checked_class
class TopologyTestDriver:
    """A driver that runs a topology in the thread of the test.

    Args:
        topology: the topology.
        config: settings by name, as in a configuration file, or a `Config`. `bootstrap.servers` is not needed.
        initial_wall_clock: wall-clock time at the start; default: now.

    Raises:
        MillpondError: the topology or a setting cannot be used.
    """

    __test__ = False  # not a test case for pytest

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, object] | Config | None = None,
        *,
        initial_wall_clock: Instant | None = None,
    ) -> None:
        check_topology("TopologyTestDriver", topology)
        if not isinstance(config, Config):
            config = Config.of({"application.id": "test-application", **(config or {})}, required=())
        check_configured(topology, config)
        self._now_ms = epoch_ms(initial_wall_clock) if initial_wall_clock is not None else time.time_ns() // 1_000_000
        self._backend = self._open_backend()
        self._outputs: dict[str, deque[RawRecord]] = {}
        self._produced: set[str] = set()
        self._offsets: dict[str, int] = {}
        self._returned: Counter[str] = Counter()
        # The inputs that have records. Of those whose next records have the same time, this order decides which is
        # next, as in Kafka Streams' driver. A worker has none, since records do not come to it in a defined order.
        self._order = JavaHeap(RecordQueue.head_timestamp)
        self._directory: Path | None = None
        self._environment = Environment(
            application_id=config.application_id,
            handlers=Handlers(
                config.deserialization_exception_handler,
                config.processing_exception_handler,
                config.production_exception_handler,
                config.errors_dead_letter_queue_topic_name,
            ),
            internal_topics=frozenset(topology.repartition_topics),
            default_key=config.default_key_serde,
            default_value=config.default_value_serde,
            default_timestamp_extractor=config.default_timestamp_extractor,
            max_task_idle_ms=config.max_task_idle_ms,
            cache_bytes=config.statestore_cache_max_bytes,
            dsl_stores_in_memory=config.default_dsl_store == "in_memory",
            settings={**config.as_mapping(), EMIT_INTERVAL: 0, JOIN_EMIT_INTERVAL: 0},
            now_ms=lambda: self._now_ms,
            metrics=UserMetrics(config.metrics_recording_level),
            task_directory=self._task_directory,
        )
        self._globals = {updater.topic: updater for updater in self._global_updaters(topology)}
        whole = _whole(topology)
        self._pattern_sources = [source for source in whole.sources if source.pattern]
        self._task = self._make_task(whole, frozenset(topology.repartition_topics), config)

    def _open_backend(self) -> OrderedBackend:
        """Return the backend of all stores."""
        return MemoryBackend()

    def _task_directory(self, task: TaskId) -> Path:
        """Return the directory of the task's own files: a temporary one, until the driver is closed."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="millpond-test-"))
        return self._directory / str(task)

    def _global_updaters(self, topology: Topology) -> list[GlobalStateUpdater]:
        updaters = []
        for definition in topology.global_stores:
            builder = self._environment.complete_global(definition)
            updater = GlobalStateUpdater(definition, builder, self._backend, self._environment)
            now_ms = self._environment.now_ms()
            updater.begin({Partition(updater.topic, 0): (0, 0)}, _NO_TOPIC, Moment(0.0, now_ms), now_ms)
            updaters.append(updater)
        return updaters

    def _make_task(self, whole: Subtopology, internal: frozenset[str], config: Config) -> StreamTask:
        stores: dict[str, Any] = {}
        for store in whole.stores:
            builder = self._environment.complete(store)
            topic = changelog_topic(whole, builder.name, internal, config.application_id)
            stores[builder.name] = builder.build(0, self._backend, topic)
        global_stores = {updater.store.name: updater.store for updater in self._globals.values()}
        task = StreamTask(whole, 0, stores, global_stores, self._environment)
        task.resume_at({topic: (0, OffsetMetadata()) for topic in task.inputs})
        return task

    # Topics

    def create_input_topic(
        self,
        name: str,
        *,
        key: Serde[K],
        value: Serde[V],
        start: Instant | None = None,
        auto_advance: timedelta = timedelta(),
    ) -> TestInputTopic[K, V]:
        """Return a topic to pipe records into.

        Args:
            name: the topic's name.
            key: serde of the keys.
            value: serde of the values.
            start: timestamp of the first record that is piped without one; default: the driver's wall-clock time.
            auto_advance: the time between two such records.
        """
        start_ms = self._now_ms if start is None else epoch_ms(start)
        return TestInputTopic(name, key, value, self._pipe, start_ms, milliseconds(auto_advance, "auto_advance"))

    def create_output_topic(self, name: str, *, key: Serde[K], value: Serde[V]) -> TestOutputTopic[K, V]:
        """Return a topic to read results from. Internal topics have their real names, with the application's prefix."""
        return TestOutputTopic(name, key, value, self._outputs.setdefault(name, deque()))

    def produced_topic_names(self) -> set[str]:
        """Return the names of all topics that the topology has written to, internal ones included."""
        return set(self._produced)

    # Time

    def advance_wall_clock_time(self, advance: timedelta) -> None:
        """Advance wall-clock time, and call the punctuations that are due."""
        self._now_ms += milliseconds(advance, "advance")
        self._task.punctuate(self._now_ms)
        self._commit()
        self._complete()

    # Stores

    def get_all_state_stores(self) -> dict[str, Any]:
        """Return all stores by name, global ones included."""
        stores = [*self._task.stores.values(), *(each.store for each in self._globals.values())]
        return {store.name: store.of_user for store in stores}

    def get_state_store(self, name: str) -> Any:
        """Return a store by name; None if it does not exist."""
        return self.get_all_state_stores().get(name)

    def get_key_value_store(self, name: str) -> KeyValueStore[Any, Any] | KeyValueStoreFacade[Any, Any] | None:
        """Return a key-value store; for a timestamped one, the values without timestamps. None if it does not exist.

        Raises:
            TopologyError: the store is of another kind; so with the other methods.
        """
        store: Any = self._store(name, TimestampedKeyValueStore, KeyValueStore)
        return KeyValueStoreFacade(store) if isinstance(store, TimestampedKeyValueStore) else store

    def get_timestamped_key_value_store(self, name: str) -> TimestampedKeyValueStore[Any, Any] | None:
        """Return a timestamped key-value store, with values of `ValueAndTimestamp`. None if it does not exist."""
        return self._store(name, TimestampedKeyValueStore)

    def get_versioned_key_value_store(self, name: str) -> VersionedKeyValueStore[Any, Any] | None:
        """Return a versioned key-value store. None if it does not exist."""
        return self._store(name, VersionedKeyValueStore)

    def get_session_store(self, name: str) -> SessionStore[Any, Any] | None:
        """Return a session store. None if it does not exist."""
        return self._store(name, SessionStore)

    def get_window_store(self, name: str) -> WindowStore[Any, Any] | WindowStoreFacade[Any, Any] | None:
        """Return a window store; of a timestamped one, the values without timestamps. None if it does not exist."""
        store: Any = self._store(name, TimestampedWindowStore, WindowStore)
        return WindowStoreFacade(store) if isinstance(store, TimestampedWindowStore) else store

    def get_timestamped_window_store(self, name: str) -> TimestampedWindowStore[Any, Any] | None:
        """Return a timestamped window store, with values of `ValueAndTimestamp`. None if it does not exist."""
        return self._store(name, TimestampedWindowStore)

    def _store(self, name: str, *kinds: type[S]) -> S | None:
        """Return a store of one of several kinds; None if it does not exist."""
        store: S | None = self.get_state_store(name)
        if store is None or isinstance(store, kinds):
            return store
        kind, method = kind_of_store(store)
        raise TopologyError(f"'{name}' is {kind}: read it by {method}('{name}').")

    def metrics(self) -> dict[str, int]:
        """Return the task's counters: processed, dropped (by global tables too), enforced_processing, punctuations."""
        return {
            "processed": self._task.processed,
            "dropped": self._task.context.dropped + sum(each.context.dropped for each in self._globals.values()),
            "enforced_processing": self._task.group.enforced,
            "punctuations": self._task.punctuated,
        }

    # Running

    def _pipe(self, topic: str, records: Iterable[RawRecord]) -> None:
        if not self._reads(topic) and not self._matches_pattern(topic):
            known = ", ".join(sorted({*self._task.inputs, *self._globals})) or "none"
            raise TopologyError(f"no source of the topology reads topic '{topic}'; its input topics are: {known}.")
        if self._task.holds_batches:
            for record in list(records):
                self._enqueue(topic, record)
            self._complete()
            return
        for record in records:
            self._enqueue(topic, record)
            self._complete()

    def _reads(self, topic: str) -> bool:
        return topic in self._task.inputs or topic in self._globals

    def _matches_pattern(self, topic: str) -> bool:
        """Return whether a source reads a topic by a pattern; if so, make the topic an input."""
        for source in self._pattern_sources:
            if source.pattern is not None and source.pattern.fullmatch(topic):
                self._task.add_input(source, topic)
                return True
        return False

    def _enqueue(self, topic: str, record: RawRecord) -> None:
        offset = self._offsets.get(topic, 0)
        self._offsets[topic] = offset + 1
        message = Message(
            topic=topic,
            partition=0,
            offset=offset,
            key=record.key,
            value=record.value,
            timestamp=(TIMESTAMP_CREATE_TIME, record.timestamp),
            headers=[*record.headers] if record.headers else None,
        )
        if topic in self._globals:
            self._globals[topic].apply(Partition(topic, 0), [message])
        else:
            queue = self._task.inputs[topic]
            empty = not queue.chunks
            self._task.add(topic, [message])
            if empty and queue.chunks:
                self._order.offer(queue)

    def _complete(self) -> None:
        """Process records until no record is left.

        Raises:
            TopologyError: the topology goes on writing records to a topic that it reads.
        """
        task = self._task
        self._returned.clear()
        while True:
            for queue in task.inputs.values():
                queue.at_end = True
            first = self._order.first()
            if first is not None:
                task.group.queues = (first, *(queue for queue in task.inputs.values() if queue is not first))
            if not task.process(_BATCH if task.holds_batches else 1, self._now_ms):
                break
            self._reorder()
            task.punctuate_stream_time()
            self._commit()
        # A record that could not be decoded may have produced dead letters.
        if task.outbox:
            self._commit()
            self._complete()

    def _reorder(self) -> None:
        """Sort the inputs again after their next records have changed: with batches, of any of them."""
        if self._task.holds_batches:
            changed = [*self._order]
            self._order = JavaHeap(RecordQueue.head_timestamp)
        elif (first := self._order.first()) is not None:
            changed = [first]
            self._order.poll()
        else:
            changed = []
        for queue in changed:
            if queue.chunks:
                self._order.offer(queue)

    def _commit(self) -> None:
        task = self._task
        for _, rows in task.flush():
            for row in rows:
                self._capture(row)
        for store in task.stores.values():
            rows = store.seal()
            self._backend.write([(store.name, 0, rows)], {(store.name, 0): (None, store.metadata())})
            store.committed()
        task.commit_needed = False
        task.context.commit_requested = False
        produced = task.outbox[:]
        task.outbox.clear()
        for row in produced:
            topic, record = self._capture(row)
            if self._reads(topic):
                self._count_returned(topic)
                self._enqueue(topic, record)

    def _count_returned(self, topic: str) -> None:
        """Count a record that the topology writes to a topic that it reads; raise TopologyError if there is no end."""
        self._returned[topic] += 1
        if self._returned[topic] > _MAX_RETURNED and not is_repartition_topic(topic):
            raise TopologyError(
                f"one record made the topology write more than {_MAX_RETURNED:,} records to topic '{topic}', which it "
                "also reads, so that there is no end: write to another topic, or filter the records that go round."
            )

    def _capture(self, row: Outgoing) -> tuple[str, RawRecord]:
        topic, value, key, _partition, _callback, _, timestamp, *headers = row
        record = RawRecord(key, value, timestamp, headers[0] if headers else None)
        self._outputs.setdefault(topic, deque()).append(record)
        self._produced.add(topic)
        return topic, record

    def close(self) -> None:
        """Close processors and stores, whichever of them fail."""
        stores = [*self._task.stores.values(), *(each.store for each in self._globals.values())]
        take_all((self._task.close, *(each.close for each in stores), self._backend.close, self._delete_directory))

    def _delete_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _whole(topology: Topology) -> Subtopology:
    """Return all sub-topologies as a single one, because the driver has one task.

    As in Kafka Streams' driver, processors are initialised in the order in which they were added, whatever
    sub-topology they are in: punctuations of one time are called in this order.
    """
    parts = topology.subtopologies()
    ranks = {name: rank for rank, name in enumerate(topology._nodes)}  # noqa: SLF001 - not public
    return Subtopology(
        id=0,
        sources=tuple(source for part in parts for source in part.sources),
        processors=tuple(
            sorted((node for part in parts for node in part.processors), key=lambda node: ranks[node.name])
        ),
        sinks=tuple(sink for part in parts for sink in part.sinks),
        stores=tuple(store for part in parts for store in part.stores),
        changelogs={store: topic for part in parts for store, topic in part.changelogs.items()},
        order=tuple(name for part in parts for name in part.order),
    )
