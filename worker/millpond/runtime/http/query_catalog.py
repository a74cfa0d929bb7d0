"""The query catalog of an application, from its topology and plan, and the connection to its coordinator."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from millpond.queries.catalog import OnDisk, QueryableKind, StoreCatalog, StoreInfo
from millpond.queries.directory import CoordinatorView, open_assignment
from millpond.runtime.config.model import Config
from millpond.runtime.processing.environment import Environment
from millpond.runtime.topics.plan import Plan
from millpond.state import (
    KeyValueStoreBuilder,
    OuterJoinStoreBuilder,
    SessionStoreBuilder,
    StateStoreBuilder,
    VersionedKeyValueStoreBuilder,
    WindowStoreBuilder,
)
from millpond.state.builders import store_serdes
from millpond.state.formats import segment_interval
from millpond.topology import Topology

__all__ = ("coordinator_view", "store_catalog")


def coordinator_view(config: Config) -> Callable[[], AbstractAsyncContextManager[CoordinatorView]] | None:
    """Return a function that opens the connection to the coordinator's assignment; None without a coordinator."""
    url = config.coordinator_url
    if url is None:
        return None
    return lambda: open_assignment(
        url, config.application_id, token_file=config.coordinator_token_file, ca_file=config.coordinator_ca_file
    )


def store_catalog(topology: Topology, plan: Plan, environment: Environment) -> StoreCatalog:
    """Return the queryable stores: all but stores of one's own, the stores of stream-stream joins, and buffers.

    Args:
        topology: the topology of the application.
        plan: the plan of the topology.
        environment: the environment, with the default serdes.
    """
    found = []
    on_disk = []
    others: dict[str, str] = {}
    for subtopology in plan.subtopologies:
        tasks = [task for task in plan.tasks if task.subtopology == subtopology.id]
        inputs = {topic: plan.partitions[topic] for task in tasks for topic in plan.tasks[task]}
        for builder in subtopology.stores:
            topic = plan.changelogs[subtopology.id].get(builder.name)
            complete = environment.complete(builder)
            if complete.persistent and topic is not None:
                on_disk.append(OnDisk(builder.name, subtopology.id, len(tasks)))
            info = _info(complete, topic, len(tasks), subtopology.id, inputs)
            if isinstance(info, StoreInfo):
                found.append(info)
            else:
                others[builder.name] = info
    for each in topology.global_stores:
        inputs = {topic: plan.partitions[topic] for topic in each.source.topics}
        info = _info(environment.complete_global(each), None, 1, None, inputs)
        if isinstance(info, StoreInfo):
            found.append(info)
        else:
            others[each.store.name] = info
    return StoreCatalog(environment.application_id, found, on_disk, others)


def _info(
    builder: Any, topic: str | None, partitions: int, subtopology: int | None, inputs: dict[str, int]
) -> StoreInfo | str:
    """Return the store for queries, or the reason why it does not answer any."""
    key, value = store_serdes(builder, topic)
    common: dict[str, Any] = {
        "name": builder.name, "partitions": partitions, "key": key, "value": value,
        "persistent": builder.persistent, "subtopology": subtopology, "inputs": inputs,
    }  # fmt: skip
    if isinstance(builder, KeyValueStoreBuilder):
        return StoreInfo(kind=QueryableKind.KEY_VALUE, timestamped=builder.timestamped, **common)
    if isinstance(builder, SessionStoreBuilder):
        return StoreInfo(
            kind=QueryableKind.SESSION,
            timestamped=False,
            retention_ms=builder.retention_ms,
            segment_ms=segment_interval(builder.retention_ms),
            **common,
        )
    if isinstance(builder, VersionedKeyValueStoreBuilder):
        return StoreInfo(
            kind=QueryableKind.VERSIONED,
            timestamped=False,
            retention_ms=builder.history_retention_ms,
            segment_ms=builder.interval_ms,
            **common,
        )
    if isinstance(builder, WindowStoreBuilder) and not builder.retain_duplicates:
        return StoreInfo(
            kind=QueryableKind.WINDOW,
            timestamped=builder.timestamped,
            window_size_ms=builder.window_size_ms,
            retention_ms=builder.retention_ms,
            segment_ms=segment_interval(builder.retention_ms),
            **common,
        )
    if isinstance(builder, StateStoreBuilder):
        return (
            "is of a class of the application, which only its processors read: let one put what queries need into a "
            "key-value store"
        )
    if isinstance(builder, WindowStoreBuilder | OuterJoinStoreBuilder):
        return (
            "has the records that a join of streams waits with, many of one key and time, and does not answer queries: "
            "store the join's results, with to_table()"
        )
    return (
        "is the buffer of a suppress() or of a join with a grace period, and does not answer queries: store the "
        "results, with to_table()"
    )
