"""Creates the parts that live as long as the worker, from its configuration and topology."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millpond.runtime.all_steps import take_all
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import OffsetCommitter
from millpond.runtime.config.memory_limit import row_cache_bytes
from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS, COPY_AHEAD_KIB, make_consumer, make_offset_reader
from millpond.runtime.kafka.committed_ends import CommittedEnds
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.missing_rights import Access
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.processing.environment import Environment
from millpond.runtime.processing.handlers import Handlers
from millpond.runtime.processing.tracing import Tracing
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_restorer import open_bootstrap
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.runtime.tasks.resources import TaskResources
from millpond.runtime.tasks.start_positions import StartPositions
from millpond.runtime.tasks.task_stores import TaskStores
from millpond.runtime.tasks.topic_ids import TopicIdWatch
from millpond.runtime.topics.left_changelogs import warn_of_left_changelogs
from millpond.runtime.topics.lost_changelogs import check_changelogs
from millpond.runtime.topics.plan import Plan, plan_with
from millpond.runtime.topics.planning import plan_on
from millpond.runtime.topics.renamed_back import warn_of_stores_renamed_back
from millpond.runtime.topics.replicas import ReplicaCheck
from millpond.runtime.topics.state_of_earlier_life import check_no_earlier_life
from millpond.runtime.topics.state_sources import state_sources, warn_of_deletions
from millpond.runtime.topics.watch import TopicWatch
from millpond.runtime.topics.window_changelogs import ExpiredRecords, keep_records, window_changelogs, without_limit
from millpond.state import StateFile, StateFileOptions
from millpond.topology import Topology
from millpond.topology.user_metrics import UserMetrics

from .otel_spans import open_tracing

__all__ = ("Assembly", "assemble")

log: logging.Logger = logging.getLogger(__name__)

_METADATA_TIMEOUT_S = 2.0
#: Kafka's default for `metadata.max.age.ms`.
_METADATA_MAX_AGE_MS = 300_000
#: Requests to Kafka that may run in parallel beside the loop; each has its own connection.
_REQUEST_THREADS = 3


@dataclass(frozen=True)
class Assembly:
    """The parts of a worker that live as long as it does."""

    cluster: KafkaAdmin
    plan: Plan
    environment: Environment
    state_file: StateFile
    consumer: ReplaceableConsumer
    """Reads inputs and the topics of global stores."""
    copier: ReplaceableConsumer
    """Reads changelogs."""
    offset_committer: OffsetCommitter | None
    """Commits offsets under at_least_once; None under exactly_once, where transactions commit them."""
    executor: TaskExecutor
    watch: TopicWatch
    """Detects new partitions of inputs, and new topics that match a pattern."""
    topic_ids: TopicIdWatch
    """Detects topics that were deleted and created again."""
    expired: ExpiredRecords
    """Deletes changelog records of windows that have expired."""
    offsets: OffsetStore
    """The committed offsets and their metadata."""

    def close(self) -> None:
        """Close the tasks, the state and the clients, whichever of them fail."""
        tracing = () if self.environment.tracing is None else (self.environment.tracing.close,)
        take_all((self.executor.close, self.state_file.close, self.consumer.close, self.copier.close, *tracing))


def assemble(  # noqa: PLR0913 - callbacks to the parts of the worker
    topology: Topology,
    config: Config,
    *,
    reader: ChangelogReader,
    stopping: Callable[[], bool],
    on_error: Callable[[KafkaError], None],
    fencing: Callable[[str], Producer],
    blockers: Blockers,
    admit: Callable[[str], None],
    at_end: ExitStack,
) -> Assembly:
    """Connect to Kafka, plan the tasks, open the state, and create internal topics.

    Args:
        topology: the topology to run.
        config: the worker's configuration.
        reader: restores stores from changelogs.
        stopping: returns whether to stop waiting for brokers.
        on_error: called with errors of the clients.
        fencing: makes a producer with the transactional id of an owner, which fences that owner's producer.
        blockers: the blockers of the worker.
        admit: called with the id of the Kafka cluster before anything is created or changed there; raises to end the
            start.
        at_end: closes the state, however the start and the run end.

    Raises:
        MillpondError: no broker answers, a topic is missing or has the wrong shape, or the state cannot be opened.
    """
    tracing = open_tracing(config)
    patience = timedelta(milliseconds=config.task_timeout_ms)
    cluster = KafkaAdmin(
        config.admin_settings(CLIENT_DEFAULTS), patience=patience, stopping=stopping, blockers=blockers
    )
    existing = cluster.topics()
    admit(cluster.id)

    def planned(topics: Mapping[str, int]) -> Plan:
        return plan_with(topology, topics, config)

    plan = plan_on(cluster, existing, topology, config)
    state_file = _open_state(config)
    at_end.callback(state_file.close)
    threads = ConsumerThreads("millpond-registrar", _REQUEST_THREADS, lambda: make_offset_reader(config, on_error))
    offsets = OffsetStore(
        threads.consumer,
        threads.forget_consumer,
        lambda: make_offset_reader(config, on_error, stable=False),
        stopping,
        config.task_timeout_ms / 1000,
        Access.of(config.consumer_settings(), config.application_id),
        exactly_once=config.exactly_once,
    )
    environment = _environment(topology, config, cluster, tracing)
    stores = TaskStores(plan, environment, state_file, cluster.ranges)
    bootstrap = open_bootstrap(config, stores.backend, environment.now_ms)
    newest = check_changelogs(plan, existing, cluster.topics, offsets.survey, state_file)
    warn_of_left_changelogs(plan, newest, config.application_id)
    warn_of_stores_renamed_back(plan, newest, config.application_id, cluster.facts, offsets.survey)
    starts = StartPositions(plan, config, environment, "")
    check_no_earlier_life(plan, newest, offsets.survey, cluster.ranges, starts.from_beginning)
    windows = window_changelogs(plan)
    cluster.ensure(without_limit(plan.internal, windows), newest, config.replication_factor)
    cluster.on_listing = ReplicaCheck([each.name for each in plan.internal], config.replication_factor, blockers)
    cluster.topics()  # with the replicas of new ones
    stores.time_limits = keep_records(windows, newest, cluster)
    of_globals = [(each.store, each.source.topics[0]) for each in topology.global_stores]
    warn_of_deletions(state_sources(plan, of_globals), cluster.configs)
    offset_committer: OffsetCommitter | None = None

    def on_commit(error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        if offset_committer is not None:
            offset_committer.on_commit(error, partitions)

    commit_callback = None if config.exactly_once else on_commit
    sources = {topic for topics in plan.tasks.values() for topic in topics}
    consumer = ReplaceableConsumer(lambda: _with_metadata(make_consumer(config, commit_callback, on_error), sources))
    if not config.exactly_once:
        offset_committer = OffsetCommitter(consumer)
    changelogs = {topic for of_stores in plan.changelogs.values() for topic in of_stores.values()}
    copier = ReplaceableConsumer(
        lambda: _with_metadata(make_consumer(config, None, on_error, COPY_AHEAD_KIB), changelogs)
    )
    for each in topology.global_stores:
        stores.add_global(environment.complete(each.store))
    global_stores = GlobalStores(
        topology.global_stores, plan.partitions, environment, stores.of_builder, consumer, cluster, bootstrap
    )
    executor = TaskExecutor(
        TaskResources(
            plan=plan,
            config=config,
            environment=environment,
            stores=stores,
            global_stores=global_stores,
            consumer=consumer,
            copier=copier,
            cluster=cluster,
            offsets=offsets,
            threads=threads,
            committed_ends=CommittedEnds(lambda: make_offset_reader(config, on_error, stable=False)),
            reader=reader,
            fencing=fencing,
            snapshots=bootstrap,
        )
    )
    interval_s = int(config.admin_settings().get("metadata.max.age.ms", _METADATA_MAX_AGE_MS)) / 1000
    watch = TopicWatch(
        plan,
        planned,
        lambda known: threads.run(lambda: cluster.try_topics(known)),
        interval_s,
        blockers,
        more_tasks=config.coordinator_url is not None,  # only a coordinator can assign them
    )
    ids = TopicIdWatch(executor, lambda topics: threads.run(lambda: cluster.try_ids(topics)))
    expired = ExpiredRecords(plan, windows, cluster, threads.run)
    return Assembly(
        cluster,
        plan,
        environment,
        state_file,
        consumer,
        copier,
        offset_committer,
        executor,
        watch,
        ids,
        expired,
        offsets,
    )


def _with_metadata(consumer: Consumer, topics: Iterable[str]) -> Consumer:
    """Make a new consumer load the metadata of topics, since the first assignment of an unknown topic takes 0.5 s."""
    for topic in sorted(topics):
        try:
            consumer.list_topics(topic, timeout=_METADATA_TIMEOUT_S)
        except KafkaException as error:
            log.info("topic %s: cannot load its metadata in advance: %s", topic, error.args[0].str())
            break
    return consumer


def _open_state(config: Config) -> StateFile:
    options = StateFileOptions(
        cache_bytes=max(config.rocksdb_block_cache_bytes, config.rocksdb_write_buffer_bytes),
        write_buffer_bytes=config.rocksdb_write_buffer_bytes,
    )
    state_file = StateFile(config.directory, options)
    if state_file.set_aside is not None:
        log.error(
            "local state: cannot be opened (%s); moved it to %s, and restoring all stores from their changelogs",
            state_file.reason,
            state_file.set_aside,
        )
    return state_file


def _environment(
    topology: Topology, config: Config, cluster: KafkaAdmin, tracing: Tracing | None = None
) -> Environment:
    return Environment(
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
        row_cache_bytes=row_cache_bytes(config.rocksdb_row_cache_bytes),
        settings=config.as_mapping(),
        partition_count=cluster.partition_count,
        metrics=UserMetrics(config.metrics_recording_level),
        tracing=tracing,
        task_directory=lambda task: config.directory / "tasks" / str(task),
    )
