"""Topics that were deleted and created again, or lost records: the errors, with the choices that a person has."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.errors import TopicError
from millpond.runtime.config.model import Config
from millpond.runtime.offsets.metadata import Partition

from .plan import Plan

__all__ = ("choices_of", "recreated", "recreated_while_running", "shorter")


def recreated(partition: Partition, offset: int, choices: str) -> TopicError:
    """Return the error for a committed offset that is in a former topic of that name."""
    return TopicError(
        f"topic '{partition.topic}' was deleted and created again: the committed offset {offset} of {partition} is in "
        f"the former topic, so the first records of the new one would be skipped. None of them is processed before you "
        f"choose. {choices}"
    )


def recreated_while_running(topic: str, plan: Plan, choices: str) -> TopicError:
    """Return the error for a topic whose id changed under a running worker."""
    changelogs = {changelog for of_stores in plan.changelogs.values() for changelog in of_stores.values()}
    if topic in changelogs and topic not in plan.partitions:
        return TopicError(
            f"changelog '{topic}' was deleted and created again while the application ran: the new one lacks the state "
            f"from before. Nothing was committed since that was noticed. Restore the topic with its content, or run "
            f"'millpond reset' to process the inputs from the beginning."
        )
    return TopicError(
        f"topic '{topic}' was deleted and created again while the application ran: the first records of the new one "
        f"may be skipped. Nothing was committed since that was noticed. {choices}"
    )


def shorter(partition: Partition, offset: int, end: int, choices: str) -> TopicError:
    """Return the error for a topic, certainly the same one, that ends before a committed offset."""
    return TopicError(
        f"{partition} ends at {end}, but its committed offset is {offset}, and it is still the same topic: brokers "
        f"have lost records {end} to {offset - 1}, as in an unclean leader election. New records with these offsets "
        f"would be skipped. None of them is processed before you choose. {choices}"
    )


def choices_of(config: Config, inputs: Iterable[str]) -> str:
    """Return the commands between which a person has to choose, as sentences.

    Args:
        config: the worker's configuration.
        inputs: the inputs of the application, without its internal topics.
    """
    reset = (
        f"millpond reset --application-id {config.application_id} --bootstrap-servers {config.bootstrap_servers} "
        f"--input-topics {','.join(sorted(inputs))}"
    )
    return (
        f"Stop all workers, and run one of: '{reset} --to-earliest' processes the inputs from their first records, "
        f"and the same with --to-latest only new records; both begin with empty state."
    )
