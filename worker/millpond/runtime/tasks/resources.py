"""The shared parts that a worker's tasks use: clients, stores, threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer

from millpond.runtime.config.model import Config
from millpond.runtime.kafka.admin import KafkaAdmin
from millpond.runtime.kafka.committed_ends import CommittedEnds
from millpond.runtime.kafka.consumer_threads import ConsumerThreads
from millpond.runtime.kafka.replaceable_consumer import ReplaceableConsumer
from millpond.runtime.ownership.takeover import OffsetStore
from millpond.runtime.processing.environment import Environment
from millpond.runtime.restoring.changelog_reader import ChangelogReader
from millpond.runtime.restoring.global_stores import GlobalStores
from millpond.runtime.restoring.snapshot_restorer import SnapshotRestorer
from millpond.runtime.topics.plan import Plan

from .task_stores import TaskStores

__all__ = ("TaskResources",)


@dataclass(frozen=True, kw_only=True)
class TaskResources:
    """The shared parts that tasks use; all of them outlive the tasks."""

    plan: Plan
    config: Config
    environment: Environment
    stores: TaskStores
    """The state of all tasks."""
    global_stores: GlobalStores
    consumer: ReplaceableConsumer
    """Reads inputs and the topics of global stores."""
    copier: ReplaceableConsumer
    """Reads changelogs."""
    cluster: KafkaAdmin
    offsets: OffsetStore
    """The committed offsets and their metadata."""
    threads: ConsumerThreads
    """Threads for requests that wait for brokers."""
    committed_ends: CommittedEnds
    """Requests the committed offsets of inputs that are changelogs, too."""
    reader: ChangelogReader
    """Restores stores from changelogs."""
    fencing: Callable[[str], Producer]
    """Makes a producer with the transactional id of an owner, which fences that owner's producer."""
    snapshots: SnapshotRestorer | None = None
    """Restores stores from snapshots; None if the application has none."""
