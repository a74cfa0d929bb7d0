"""The check that topics of others, from which stores are restored, keep the last record of each key.

Such topics are the inputs of tables with `reuse.ktable.source.topics`, of read-only state stores, and of global stores.
Brokers delete records from them as their owners have configured. Kafka Streams does not look at it, and the rows are
missing when a store is restored, without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from millpond.state.builders import SessionStoreBuilder, WindowStoreBuilder

from .identity import deletion
from .plan import Plan

__all__ = ("state_sources", "warn_of_deletions")

log: logging.Logger = logging.getLogger(__name__)


def state_sources(plan: Plan, global_stores: Iterable[tuple[Any, str]]) -> dict[str, str]:
    """Return the inputs from which stores are restored, each with the name of such a store.

    Stores of windows and sessions are left out, since their rows expire, too.

    Args:
        plan: the plan of the application.
        global_stores: the builder and the topic of each global store.
    """
    internal = {each.name for each in plan.internal}
    restored = [
        (builder, plan.changelogs[part.id].get(builder.name)) for part in plan.subtopologies for builder in part.stores
    ]
    return {
        topic: builder.name
        for builder, topic in (*restored, *global_stores)
        if topic is not None
        and topic not in internal
        and not isinstance(builder, WindowStoreBuilder | SessionStoreBuilder)
    }


def warn_of_deletions(
    sources: Mapping[str, str], configs: Callable[[Collection[str]], Mapping[str, Mapping[str, str]]]
) -> None:
    """Log a warning for each topic whose records are deleted although they may be the only copy of a row.

    Args:
        sources: the topics, each with the name of a store, as `state_sources` returns them.
        configs: requests the configurations of topics; those that this client may not read are missing.
    """
    if not sources:
        return
    for topic, config in sorted(configs(sources.keys()).items()):
        settings = deletion(config)
        if settings is not None:
            log.warning(
                "store %s: it is restored from source topic %s, from which brokers delete records (%s), so a restored "
                "store lacks the rows whose last record was deleted; set the topic's 'cleanup.policy' to 'compact'",
                sources[topic], topic, settings,
            )  # fmt: skip
