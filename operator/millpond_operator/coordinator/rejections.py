"""Why heartbeats are refused, in sentences with cause and cure."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.protocol import PROTOCOL_VERSION, Epoch, Heartbeat, Refusal, RefusalCode, TopologySummary

from .options import KafkaClaim
from .topologies import differences

__all__ = (
    "LONGEST_NAME",
    "bad_name",
    "claim_pending",
    "claim_refused",
    "not_leading",
    "not_the_pinned",
    "other_application",
    "other_topology",
    "replaced",
    "some",
    "too_many_tasks",
    "two_topologies",
    "unbelievable",
    "unsupported",
)


LONGEST_NAME = 200


def some(names: Sequence[str]) -> str:
    """A few of the names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def unsupported(worker: str, version: int) -> Refusal:
    """The worker speaks another version of the protocol."""
    older = "older" if version < PROTOCOL_VERSION else "newer"
    return Refusal(
        RefusalCode.UNSUPPORTED_VERSION,
        f"Worker '{worker}' speaks version {version} of the protocol, {older} than the coordinator's "
        f"{PROTOCOL_VERSION}: run the same version of millpond on both.",
    )


def other_application(heartbeat: Heartbeat, application: str) -> Refusal:
    """The heartbeat is meant for another application's coordinator."""
    return Refusal(
        RefusalCode.UNKNOWN_APPLICATION,
        f"Worker '{heartbeat.worker}' belongs to '{heartbeat.application}' and this is '{application}': "
        "check application.id.",
    )


def bad_name(worker: str) -> Refusal:
    """The worker cannot be called that: ids are shown to people, and one of them stands for nobody."""
    return Refusal(
        RefusalCode.BAD_REQUEST,
        f"{worker[:40]!r} cannot be a worker's name: worker.id has up to {LONGEST_NAME} printable characters and is "
        "not 'unowned'.",
    )


def not_leading(application: str, coordinator: str, epoch: Epoch, leader: tuple[int, str]) -> Refusal:
    """Another coordinator came later."""
    term, other = leader
    return Refusal(
        RefusalCode.NOT_LEADING,
        f"Coordinator {coordinator} (term {epoch.term}) leads '{application}' no more, since "
        f"{other or 'another one'} (term {term}) does: ask again.",
    )


def replaced(application: str, worker: str, incarnation: str) -> Refusal:
    """Another process has the worker's name now."""
    return Refusal(
        RefusalCode.REPLACED,
        f"A newer process runs as worker '{worker}' of '{application}': end this one ({incarnation}), or "
        "give it a worker.id of its own.",
    )


def two_topologies(heartbeat: Heartbeat, sent: TopologySummary) -> Refusal:
    """The heartbeat contradicts itself."""
    return Refusal(
        RefusalCode.BAD_REQUEST,
        f"Worker '{heartbeat.worker}' sends topology {sent.hash} and says it runs {heartbeat.topology_hash}: "
        "run the same version of millpond everywhere.",
    )


def too_many_tasks(worker: str, tasks: int, most: int) -> Refusal:
    """The topology is a mistake, or its assignment could not be written down."""
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{worker}' runs a topology of {tasks:,} tasks, and {most:,} is the most that can be assigned here: read "
        "topics of fewer partitions, or make several applications of it.",
    )


def unbelievable(worker: str, term: int, ours: int) -> Refusal:
    """The worker says it knows a coordinator that there cannot be."""
    return Refusal(
        RefusalCode.NOT_LEADING,
        f"Worker '{worker}' says it knows a coordinator of term {term}, and this one, of term {ours}, cannot be followed by "
        "that: ask again, or restart that worker.",
    )


def claim_pending(worker: str, application: str, reached: str) -> Refusal:
    """Whoever runs the coordinator has not claimed the id on that Kafka cluster yet."""
    return Refusal(
        RefusalCode.CLAIM_PENDING,
        f"Worker '{worker}' reaches Kafka cluster {reached}, and whether the id '{application}' is free there is being "
        "found out: ask again.",
    )


def claim_refused(heartbeat: Heartbeat, claim: KafkaClaim) -> Refusal:
    """The id belongs to somebody else on the worker's Kafka cluster, or the worker is on another cluster."""
    if claim.refusal:
        return Refusal(RefusalCode.CLAIM_REFUSED, claim.refusal)
    who = f"Worker '{heartbeat.worker}'"
    if not heartbeat.kafka_cluster:
        why = f"{who} does not say which Kafka cluster it reaches: run the coordinator's version of millpond."
    else:
        why = (
            f"{who} reaches Kafka cluster {heartbeat.kafka_cluster}, and '{heartbeat.application}' runs on "
            f"{claim.cluster}: correct bootstrap.servers, or stop all of its workers before it moves to another Kafka."
        )
    return Refusal(RefusalCode.CLAIM_REFUSED, why)


def not_the_pinned(heartbeat: Heartbeat, pinned: str, known: TopologySummary | None) -> Refusal:
    """The application is to keep another topology, whether or not anybody runs that now."""
    sent = heartbeat.topology
    what = f": {differences(known, sent)}" if sent is not None and known is not None and known.hash == pinned else ""
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{heartbeat.worker}' runs topology {heartbeat.topology_hash}, and the application is to keep {pinned}{what}. "
        "Allow the application to change its topology, and stop all of its workers first, or give this one another "
        "application.id.",
    )


def other_topology(heartbeat: Heartbeat, running: TopologySummary, others: Sequence[str]) -> Refusal:
    """Others run another topology."""
    sent = heartbeat.topology
    what = differences(running, sent) if sent is not None else "it did not say yet what differs"
    whom = f"the application's other workers ({some(others)}) run" if others else "the application's last workers ran"
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{heartbeat.worker}' runs topology {heartbeat.topology_hash} and {whom} {running.hash}: {what}. "
        "Stop those first, or give this one another application.id.",
    )
