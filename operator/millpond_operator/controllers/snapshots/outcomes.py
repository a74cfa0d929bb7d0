"""What became of the Job that makes a snapshot, by its own status and by what its pods wrote down at their end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from millpond_operator.controllers.rollout.pod_problems import Problem, mount_problem, told
from millpond_operator.kubernetes import shortened
from millpond_operator.resources import StateBootstrap

from .status import Count, WrittenTables

__all__ = ("SnapshotResult", "ended_as", "failure_of", "not_created", "pod_failure", "result_of", "waits_for")

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_SPEC = "See the log of its last pod, and make another StateBootstrap."


_Name = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{0,100}$")]


class SnapshotResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod that made a snapshot wrote down."""

    version: _Name
    base: _Name = ""
    records: Count = 0
    rows: Count = 0
    bytes: Count = 0
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    table_count: Count | None = None
    """None where no tables were asked for."""
    tables: WrittenTables = ()


class _Words(msgspec.Struct):
    snapshot: SnapshotResult


def ended_as(job: Mapping[str, Any]) -> tuple[str, str] | None:
    """`Complete` or `Failed`, and the reason; None while the Job goes on."""
    for each in job.get("status", {}).get("conditions") or ():
        if each.get("type") in {"Complete", "Failed"} and each.get("status") == "True":
            return each["type"], each.get("reason", "")
    return None


def result_of(pods: Iterable[Mapping[str, Any]]) -> SnapshotResult | None:
    """What the pod that succeeded wrote down; None when it is gone, or wrote nothing that can be read."""
    for pod in pods:
        for message in _last_words(pod):
            try:
                return msgspec.json.decode(message.strip().rpartition("\n")[2], type=_Words).snapshot
            except (msgspec.DecodeError, RecursionError):
                continue
    return None


def failure_of(bootstrap: StateBootstrap, reason: str, pods: Sequence[Mapping[str, Any]]) -> Problem:
    """Why a Job failed.

    Args:
        bootstrap: that it was made for.
        reason: of the Job's condition.
        pods: of the Job, those that are still there.
    """
    last = pod_failure(pods)
    if reason == "DeadlineExceeded":
        why = f" {last.message}" if last is not None else ""
        return Problem(
            "DeadlineExceeded",
            f"It was not made within spec.deadline ({bootstrap.spec.deadline}): raise it, or give spec.spark more resources.{why}",
            settled=True,
        )
    return last or Problem("SnapshotFailed", f"Its Job failed ({reason}). {_SPEC}", settled=True)


def pod_failure(pods: Sequence[Mapping[str, Any]]) -> Problem | None:
    """Why the last pod that failed did; None when none has."""
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    return next((found for pod in newest_first if (found := _failure_of(pod)) is not None), None)


def waits_for(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Why the containers of a pod do not start; None when nothing tells.

    Args:
        pod: of the Job.
        events: about it.
    """
    name = pod["metadata"]["name"]
    for container in pod.get("status", {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason", ""), waiting.get("message", "")
        if reason in _IMAGE:
            return Problem(
                "ImageNotPullable",
                f"The image '{container.get('image', '')}' cannot be pulled ({_clause(message) or reason}): correct "
                "spec.spark.image, or name the registry's credentials in imagePullSecrets of the StreamApp.",
            )
        if reason not in {"", "ContainerCreating", "PodInitializing"}:
            return Problem(
                "ContainerCannotStart", f"The container of pod {name} cannot start: {_clause(message) or reason}."
            )
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Problem(
                "Unschedulable",
                f"Pod {name} fits on no node: {_clause(condition.get('message', ''))}. Lower spec.spark.resources, or see "
                "spec.pod of the StreamApp.",
            )
    return mount_problem(pod, events, "StateBootstrap or the StreamApp")


def not_created(job: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Why a Job has no pods, by the events about it; None when nothing tells."""
    found = [
        each.get("message", "")
        for each in events
        if each.get("involvedObject", {}).get("uid") == job["metadata"]["uid"] and each.get("reason") == "FailedCreate"
    ]
    if not found:
        return None
    return Problem(
        "PodNotCreated",
        f"{_clause(found[-1])}. See what in the namespace forbids the pod: a quota, Pod Security, or a webhook.",
    )


def _failure_of(pod: Mapping[str, Any]) -> Problem | None:
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or ended.get("exitCode") == 0:
            continue
        words = told(ended.get("message") or "")
        if words is not None:
            return Problem(words[0], shortened(words[1]), settled=True)
        if ended.get("reason") == "OOMKilled":
            return Problem(
                "OutOfMemory", f"Pod {name} used more memory than it may: raise spec.spark.resources.", settled=True
            )
        last = shortened((ended.get("message") or "").strip().rpartition("\n")[2]) or ended.get("reason", "")
        return Problem(
            "SnapshotFailed",
            f"Pod {name} ended with status {ended.get('exitCode')}: {last}. See its log.",
            settled=True,
        )
    if status.get("phase") == "Failed":
        why = _clause(status.get("message") or status.get("reason") or "nothing tells why")
        return Problem("PodFailed", f"Pod {name} failed: {why}.", settled=True)
    return None


def _last_words(pod: Mapping[str, Any]) -> list[str]:
    """What containers that succeeded wrote down at their end."""
    ends = [
        (each.get("state") or {}).get("terminated") or {}
        for each in pod.get("status", {}).get("containerStatuses") or ()
    ]
    return [each.get("message") or "" for each in ends if each.get("exitCode") == 0]


def _clause(message: str) -> str:
    """Somebody else's words, inside of a sentence of ours: without their full stop."""
    return shortened(message).rstrip(". ")
