"""The parts of a worker, shared by its start, its loop, its recovery and its end."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millpond.protocol import Role
from millpond.runtime.blockers import Blockers
from millpond.runtime.commit.pipeline import OffsetSink
from millpond.runtime.commit.record_collector import RecordCollector
from millpond.runtime.commit.rejected_records import RejectedRecords
from millpond.runtime.commit.throttling import Throttling
from millpond.runtime.commit.transaction_size import TransactionSize
from millpond.runtime.config.model import Config
from millpond.runtime.http.metrics import WorkerMetrics
from millpond.runtime.kafka.broker_contact import BrokerContact
from millpond.runtime.kafka.clients import CLIENT_DEFAULTS
from millpond.runtime.listeners import WorkerListener
from millpond.runtime.missing_rights import Access
from millpond.runtime.offsets.metadata import Partition
from millpond.runtime.ownership.presence import PresenceReports
from millpond.runtime.standstills import Standstills
from millpond.runtime.states import WorkerState, may_follow
from millpond.runtime.tasks.coordination import Coordination
from millpond.runtime.tasks.executor import TaskExecutor
from millpond.runtime.topics.plan import Plan
from millpond.topology import Topology

from .admission import Admission
from .assembly import Assembly
from .client_errors import ClientErrors
from .commit_scheduler import CommitScheduler
from .dispatch import Dispatcher
from .embedding.controls import Controls
from .load_meter import LoadMeter
from .memory.gc import GarbageCollector
from .pacing import BatchPacing

if TYPE_CHECKING:
    import threading

    from millpond.protocol.client import CoordinatorClient

__all__ = ("COMMIT_POLL_S", "WorkerParts")

log: logging.Logger = logging.getLogger(__name__)

#: The longest time between two checks of a commit in flight, in seconds.
COMMIT_POLL_S = 0.001


@dataclass(eq=False, kw_only=True)
class WorkerParts:
    """All parts of one worker. Only its loop's thread may change them."""

    topology: Topology
    config: Config
    listener: WorkerListener
    metrics: WorkerMetrics
    blockers: Blockers
    contact: BrokerContact
    admission: Admission
    garbage: GarbageCollector
    controls: Controls
    """The requests of other threads."""

    state: WorkerState = WorkerState.CREATED
    standstills: Standstills = field(default_factory=Standstills)
    pace: BatchPacing = field(init=False)
    transactions: TransactionSize = field(init=False)
    throttling: Throttling = field(default_factory=Throttling)
    presence: PresenceReports = field(init=False)
    rejected: RejectedRecords = field(default_factory=RejectedRecords)
    client_errors: ClientErrors = field(default_factory=ClientErrors)
    access: Access = field(init=False)
    """Names the user in errors about missing rights."""
    new_plan: Plan | None = None
    """A plan with more inputs, which is used as soon as nothing waits for a commit."""
    behind: bool = False
    """Whether tasks have more records than the last turn processed."""
    leave_until: float | None = None
    """The deadline for handing tasks over at the end, in monotonic seconds; None before that."""

    assembly: Assembly = field(init=False)
    """The parts that live as long as the worker."""
    dispatcher: Dispatcher = field(init=False)
    load: LoadMeter = field(init=False)

    collector: RecordCollector = field(init=False)
    """Replaced with each producer, like the two after it."""
    committer: CommitScheduler = field(init=False)
    offset_sink: OffsetSink | None = None

    coordination: Coordination | None = None
    """None without a coordinator, like the two after it."""
    client: CoordinatorClient | None = None
    heartbeats: Future[None] | None = None

    def __post_init__(self) -> None:
        self.pace = BatchPacing(self.config, self.standstills.since)
        config = self.config
        self.transactions = TransactionSize(config.transaction_timeout_ms / 1000 if config.exactly_once else None)
        self.metrics.throttling = self.throttling
        self.access = Access.of(config.producer_settings(), config.application_id)
        self.presence = PresenceReports(
            self.config.application_id,
            self.config.worker_id,
            lambda: dict(self.config.admin_settings(CLIENT_DEFAULTS)),
            self._reported_inputs,
        )

    @property
    def stop(self) -> threading.Event:
        """Set when the worker has to commit and end."""
        return self.controls.stop

    @property
    def executor(self) -> TaskExecutor:
        """The executor of tasks."""
        return self.assembly.executor

    @property
    def written_topics(self) -> set[str]:
        """The topics that the application writes, by their names in Kafka; without those that records choose."""
        plan, dead_letters = self.assembly.plan, self.config.errors_dead_letter_queue_topic_name
        written = {each.name for each in plan.internal} | ({dead_letters} if dead_letters else set())
        for part in plan.subtopologies:
            written |= set(map(self.assembly.environment.real_topic, part.sink_topics))
        return written

    @property
    def used_topics(self) -> set[str]:
        """The topics that the application reads or writes; none before they are known. Safe from any thread."""
        if not hasattr(self, "assembly"):
            return set()
        return self.written_topics | set(self.assembly.plan.partitions)

    def become(self, state: WorkerState) -> None:
        """Change the state and notify the listener, if the transition is allowed."""
        if may_follow(self.state, state):
            before = self.state
            with self.controls.changed:
                self.state = state
                self.controls.changed.notify_all()
            log.info("worker %s: %s -> %s", self.config.worker_id, before.value, state.value)
            self.listener.state_changed(state)

    def may_write(self) -> bool:
        """Return whether the worker may write, since a take-over of its tasks cannot stay undetected."""
        return self.coordination is None or self.coordination.may_write()

    def positions(self) -> dict[Partition, int]:
        """Return the next offset of each input of the running tasks."""
        by_input = self.executor.by_input
        return {partition: task.inputs[partition.topic].position for partition, task in by_input.items()}

    def _reported_inputs(self) -> set[Partition]:
        """Return one input of each task that the worker runs or is about to run. Safe from any thread."""
        plan = self.assembly.plan
        held = list(self.executor.held.values())
        tasks = [each.id for each in held if each.role is Role.ACTIVE]
        if not held and self.config.coordinator_url is None:
            tasks = list(plan.tasks)
        return {min(plan.inputs_of(each)) for each in tasks if plan.tasks.get(each)}

    def close_offset_sink(self) -> None:
        """Abandon the commit in flight, if any."""
        if self.offset_sink is not None:
            self.offset_sink.close()
            self.offset_sink = None
