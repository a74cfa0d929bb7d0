"""The outcome of a snapshot's Job, from its status and from the termination messages of its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from millpond_operator.controllers.rollout.problems import Problem, mount_problem, termination_error
from millpond_operator.kubernetes import shortened
from millpond_operator.resources import StateBootstrap

from .status import Count, WrittenTables

__all__ = ("SnapshotResult", "ended_as", "failure_of", "not_created", "pod_failure", "result_of", "waits_for")

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_SEE_LOG = "See the log of its last pod, then create another StateBootstrap."

_Name = Annotated[str, msgspec.Meta(pattern=r"^[\w.-]{0,100}$")]


class SnapshotResult(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a snapshot, from the termination message of its pod."""

    version: _Name
    base: _Name = ""
    records: Count = 0
    rows: Count = 0
    bytes: Count = 0
    seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    table_count: Count | None = None
    """The number of catalog tables; None when none were asked for."""
    tables: WrittenTables = ()


class _TerminationMessage(msgspec.Struct):
    snapshot: SnapshotResult


def ended_as(job: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return `Complete` or `Failed`, and the reason; None while the Job runs."""
    for each in job.get("status", {}).get("conditions") or ():
        if each.get("type") in {"Complete", "Failed"} and each.get("status") == "True":
            return each["type"], each.get("reason", "")
    return None


def result_of(pods: Iterable[Mapping[str, Any]]) -> SnapshotResult | None:
    """Return the result of the pod that succeeded; None when it was deleted or its termination message is invalid."""
    for pod in pods:
        for message in _termination_messages(pod):
            try:
                return msgspec.json.decode(message.strip().rpartition("\n")[2], type=_TerminationMessage).snapshot
            except (msgspec.DecodeError, RecursionError):
                continue
    return None


def failure_of(bootstrap: StateBootstrap, reason: str, pods: Sequence[Mapping[str, Any]]) -> Problem:
    """Return why a Job failed.

    Args:
        bootstrap: the StateBootstrap of the Job.
        reason: the reason of the Job's condition.
        pods: the existing pods of the Job.
    """
    last = pod_failure(pods)
    if reason == "DeadlineExceeded":
        why = f" {last.message}" if last is not None else ""
        return Problem(
            "DeadlineExceeded",
            f"The snapshot was not complete within spec.deadline ({bootstrap.spec.deadline}): raise it, or give "
            f"spec.spark more resources.{why}",
            persistent=True,
        )
    return last or Problem("SnapshotFailed", f"The Job failed ({reason}). {_SEE_LOG}", persistent=True)


def pod_failure(pods: Sequence[Mapping[str, Any]]) -> Problem | None:
    """Return why the newest failed pod failed; None when no pod has failed."""
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    return next((found for pod in newest_first if (found := _failure_of(pod)) is not None), None)


def waits_for(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Return why the containers of a pod do not start; None when that is not known.

    Args:
        pod: a pod of the Job.
        events: the events about it.
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
                f"Pod {name} does not fit on any node: {_clause(condition.get('message', ''))}. Lower "
                "spec.spark.resources, or check spec.pod of the StreamApp.",
            )
    return mount_problem(pod, events, "StateBootstrap or the StreamApp")


def not_created(job: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Return why a Job has no pods, from the events about it; None when they have no reason."""
    found = [
        each.get("message", "")
        for each in events
        if each.get("involvedObject", {}).get("uid") == job["metadata"]["uid"] and each.get("reason") == "FailedCreate"
    ]
    if not found:
        return None
    return Problem(
        "PodNotCreated",
        f"{_clause(found[-1])}. Check what in the namespace forbids the pod: a quota, Pod Security, or a webhook.",
    )


def _failure_of(pod: Mapping[str, Any]) -> Problem | None:
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is None or ended.get("exitCode") == 0:
            continue
        error = termination_error(ended.get("message") or "")
        if error is not None:
            return Problem(error[0], shortened(error[1]), persistent=True)
        if ended.get("reason") == "OOMKilled":
            return Problem(
                "OutOfMemory",
                f"Pod {name} used more memory than its limit: raise spec.spark.resources.",
                persistent=True,
            )
        last = shortened((ended.get("message") or "").strip().rpartition("\n")[2]) or ended.get("reason", "")
        return Problem(
            "SnapshotFailed",
            f"Pod {name} ended with exit code {ended.get('exitCode')}: {last}. See its log.",
            persistent=True,
        )
    if status.get("phase") == "Failed":
        why = _clause(status.get("message") or status.get("reason") or "the reason is not known")
        return Problem("PodFailed", f"Pod {name} failed: {why}.", persistent=True)
    return None


def _termination_messages(pod: Mapping[str, Any]) -> list[str]:
    """Return the termination messages of the containers that succeeded."""
    ends = [
        (each.get("state") or {}).get("terminated") or {}
        for each in pod.get("status", {}).get("containerStatuses") or ()
    ]
    return [each.get("message") or "" for each in ends if each.get("exitCode") == 0]


def _clause(message: str) -> str:
    """Return a quoted message, shortened and without its full stop, for use inside a sentence."""
    return shortened(message).rstrip(". ")
