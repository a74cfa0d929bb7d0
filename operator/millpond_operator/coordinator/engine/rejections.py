"""Rejections of heartbeats, with cause and cure."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.protocol import PROTOCOL_VERSION, Epoch, Heartbeat, Refusal, RefusalCode, TopologySummary

from .options import KafkaClaim
from .topologies import differences

__all__ = (
    "LONGEST_NAME",
    "claim_pending",
    "claim_refused",
    "impossible_term",
    "malformed",
    "not_leading",
    "other_than_pinned",
    "other_topology",
    "replaced",
    "some",
    "too_many_tasks",
    "two_topologies",
    "unsupported",
)


#: Characters of a worker's id, and of a Kafka cluster's.
LONGEST_NAME = 200


def some(names: Sequence[str]) -> str:
    """Return up to three of the names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def unsupported(worker: str, version: int) -> Refusal:
    """Reject another version of the protocol."""
    older = "older" if version < PROTOCOL_VERSION else "newer"
    return Refusal(
        RefusalCode.UNSUPPORTED_VERSION,
        f"Worker '{worker}' uses protocol version {version}, {older} than the coordinator's "
        f"{PROTOCOL_VERSION}: run the same version of millpond on both.",
    )


def malformed(heartbeat: Heartbeat, application: str) -> Refusal | None:
    """Return why a heartbeat cannot be processed by this application's coordinator, whatever its worker runs."""
    if heartbeat.application != application:
        return _other_application(heartbeat, application)
    if heartbeat.version != PROTOCOL_VERSION:
        return unsupported(heartbeat.worker, heartbeat.version)
    name = heartbeat.worker
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME or name == "unowned":
        return _bad_name(name)
    return None


def _other_application(heartbeat: Heartbeat, application: str) -> Refusal:
    """Reject a heartbeat for another application's coordinator."""
    return Refusal(
        RefusalCode.UNKNOWN_APPLICATION,
        f"Worker '{heartbeat.worker}' belongs to application '{heartbeat.application}', but this is '{application}': "
        "check application.id.",
    )


def _bad_name(worker: str) -> Refusal:
    """Reject a worker id that cannot be displayed, or that the protocol reserves."""
    return Refusal(
        RefusalCode.BAD_REQUEST,
        f"{worker[:40]!r} is no valid worker.id: use up to {LONGEST_NAME} printable characters, but not 'unowned'.",
    )


def not_leading(application: str, coordinator: str, epoch: Epoch, leader: tuple[int, str]) -> Refusal:
    """Reject all heartbeats: a later coordinator leads."""
    term, other = leader
    return Refusal(
        RefusalCode.NOT_LEADING,
        f"Coordinator {coordinator} (term {epoch.term}) no longer leads '{application}', because "
        f"{other or 'another one'} (term {term}) does: retry.",
    )


def replaced(application: str, worker: str, incarnation: str) -> Refusal:
    """Reject a process because a newer one uses the worker's id."""
    return Refusal(
        RefusalCode.REPLACED,
        f"A newer process runs as worker '{worker}' of '{application}': stop this one ({incarnation}), or "
        "give it its own worker.id.",
    )


def two_topologies(heartbeat: Heartbeat, sent: TopologySummary) -> Refusal:
    """Reject a heartbeat whose topology and topology hash differ."""
    return Refusal(
        RefusalCode.BAD_REQUEST,
        f"Worker '{heartbeat.worker}' sends topology {sent.hash} but reports the hash {heartbeat.topology_hash}: "
        "run the same version of millpond everywhere.",
    )


def too_many_tasks(worker: str, tasks: int, most: int) -> Refusal:
    """Reject a topology that is too large to be stored, or a mistake."""
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{worker}' runs a topology of {tasks:,} tasks, but this coordinator assigns at most {most:,}: read "
        "topics with fewer partitions, or split the application.",
    )


def impossible_term(worker: str, term: int, ours: int) -> Refusal:
    """Reject a worker that reports a coordinator that cannot exist."""
    return Refusal(
        RefusalCode.NOT_LEADING,
        f"Worker '{worker}' knows a coordinator of term {term}, which cannot follow this one of term {ours}: retry, or "
        "restart the worker.",
    )


def claim_pending(worker: str, application: str, reached: str) -> Refusal:
    """Let a worker wait until the application id is claimed on its Kafka cluster."""
    return Refusal(
        RefusalCode.CLAIM_PENDING,
        f"Worker '{worker}' reaches Kafka cluster {reached}, and the application id '{application}' is not claimed "
        "there yet: retry.",
    )


def claim_refused(heartbeat: Heartbeat, claim: KafkaClaim) -> Refusal:
    """Reject a worker: its Kafka cluster is not the claimed one, or the application id is taken there."""
    if claim.refusal:
        return Refusal(RefusalCode.CLAIM_REFUSED, claim.refusal)
    who = f"Worker '{heartbeat.worker}'"
    if not heartbeat.kafka_cluster:
        why = f"{who} does not report its Kafka cluster: run the coordinator's version of millpond."
    else:
        why = (
            f"{who} reaches Kafka cluster {heartbeat.kafka_cluster}, but '{heartbeat.application}' runs on "
            f"{claim.cluster}: correct bootstrap.servers, or stop all workers before moving to another Kafka cluster."
        )
    return Refusal(RefusalCode.CLAIM_REFUSED, why)


def other_than_pinned(heartbeat: Heartbeat, pinned: str, known: TopologySummary | None) -> Refusal:
    """Reject a topology because the application is pinned to another one."""
    sent = heartbeat.topology
    what = f": {differences(known, sent)}" if sent is not None and known is not None and known.hash == pinned else ""
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{heartbeat.worker}' runs topology {heartbeat.topology_hash}, but the application is pinned to "
        f"{pinned}{what}. Allow the application to change its topology and stop all of its workers first, or use "
        "another application.id.",
    )


def other_topology(heartbeat: Heartbeat, running: TopologySummary, others: Sequence[str]) -> Refusal:
    """Reject a topology because other workers run another one."""
    sent = heartbeat.topology
    what = differences(running, sent) if sent is not None else "the worker did not send its topology yet"
    whom = f"the application's other workers ({some(others)}) run" if others else "the application's last workers ran"
    return Refusal(
        RefusalCode.TOPOLOGY_MISMATCH,
        f"Worker '{heartbeat.worker}' runs topology {heartbeat.topology_hash} and {whom} {running.hash}: {what}. "
        "Stop those first, or use another application.id.",
    )
