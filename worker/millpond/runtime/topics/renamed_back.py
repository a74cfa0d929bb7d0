"""Tells of stores that missed records: their tasks were processed with another changelog in the place of theirs.

So it is with a store that is renamed back. Each commit has a digest of the ids of its task's
changelogs, which proves the changelogs that were written with it (`OffsetMetadata.changelogs`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from millpond.errors import BrokerError
from millpond.runtime.offsets.metadata import CommittedOffset, Partition

from .identity import TopicIdentity, digest_of
from .left_changelogs import left_changelogs
from .plan import Plan

__all__ = ("Exchange", "exchange", "warn_of_stores_renamed_back")

log: logging.Logger = logging.getLogger(__name__)

#: How many stores of one sub-topology may have been renamed at once.
_MOST = 3
#: The number of sets of changelogs that are compared with a digest.
_MAX_SETS = 20_000


class Exchange(NamedTuple):
    """Changelogs that were not written with a commit, and those that were written in their place."""

    missed: tuple[str, ...]
    written: tuple[str, ...]


def exchange(used: Mapping[str, str], unused: Mapping[str, str], digest: str) -> Exchange | None:
    """Return the exchange that explains a digest, or None if none does.

    Args:
        used: the ids of the changelogs of a task now, by topic.
        unused: the ids of changelogs that no store uses, by topic.
        digest: the digest of one of the task's commits.
    """
    for each in itertools.islice(_exchanges(used, unused), _MAX_SETS):
        kept = [id for topic, id in used.items() if topic not in each.missed]
        if digest_of([*kept, *(unused[topic] for topic in each.written)]) == digest:
            return each
    return None


def _exchanges(used: Collection[str], unused: Collection[str]) -> Iterator[Exchange]:
    for size in range(1, min(_MOST, len(used), len(unused)) + 1):
        for missed, written in itertools.product(
            itertools.combinations(used, size), itertools.combinations(unused, size)
        ):
            yield Exchange(missed, written)


def warn_of_stores_renamed_back(
    plan: Plan,
    existing: Mapping[str, int],
    application_id: str,
    facts: Callable[[Collection[str]], Mapping[str, TopicIdentity]],
    survey: Callable[[Sequence[Partition]], Mapping[Partition, CommittedOffset]],
) -> None:
    """Log stores that missed what was processed since the last commit with their changelog.

    Args:
        plan: the topics and tasks of the application.
        existing: the partition count of every topic in the cluster.
        application_id: prefix of internal topics.
        facts: requests the identities of topics.
        survey: reads the committed offsets of partitions, without waiting for open transactions.
    """
    _, left = left_changelogs(plan, existing, application_id)
    if not left:
        return
    used = {
        number: [topic for topic in topics.values() if topic in existing] for number, topics in plan.changelogs.items()
    }
    try:
        found = facts({*left, *itertools.chain.from_iterable(used.values())})
    except BrokerError as error:
        log.info("cannot tell whether a store was renamed back: %s", error)
        return
    unused = {topic: found[topic].id for topic in left}
    committed = survey(sorted({each for task in plan.tasks for each in plan.inputs_of(task) if each.topic in existing}))
    for number, topics in used.items():
        own = {topic: found[topic].id for topic in topics}
        digests = {
            committed[each].metadata.changelogs
            for task in plan.tasks
            if task.subtopology == number
            for each in plan.inputs_of(task)
            if each in committed
        }
        for digest in sorted(digests - {"", digest_of(own.values())}):
            if (by := exchange(own, unused, digest)) is not None:
                _warn(by, {topic: store for store, topic in plan.changelogs[number].items()})


def _warn(by: Exchange, stores: Mapping[str, str]) -> None:
    several = len(by.missed) > 1
    log.warning(
        "the store%s %s missed the records that were processed last: they were committed with the changelog%s %s, "
        "which no store uses any more. If a store was renamed, or renamed back, stop the workers, and run `millpond "
        "reset` with `--internal-topics %s` to make the state again from the inputs; or go back to the other name.",
        "s" if several else "",
        " and ".join(f"'{stores[topic]}'" for topic in by.missed),
        "s" if several else "",
        " and ".join(f"'{topic}'" for topic in by.written),
        ",".join(by.written),
    )
