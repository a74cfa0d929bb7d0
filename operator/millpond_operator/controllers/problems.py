"""What keeps a pod from doing its work, in one sentence with the cure: read from the pod's own status."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ("Problem", "mount_problem", "of_pod", "of_worker")

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONTAINER = frozenset({"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"})
_LONGEST = 1_000

#: Reasons by the class of the error that ended the worker, with what to do when its sentence does not say so.
_BY_ERROR = {
    "ApplicationError": ("ApplicationNotImportable", "Correct spec.topology, or the application in the image."),
    "TopologyError": ("TopologyInvalid", "Correct the application, and set spec.image to the new image."),
    "ConfigError": ("ConfigurationInvalid", "Correct spec.config."),
    "BrokerError": ("BrokerUnreachable", "Check spec.kafka.bootstrapServers, and that the brokers can be reached."),
    "TopicError": ("TopicInvalid", "Create or correct the topic."),
    "OwnershipError": ("OwnershipLost", "See that no other application uses this applicationId."),
    "StateError": ("StateUnusable", "See the worker's log."),
    "StateDirectoryLocked": ("StateUnusable", "See the worker's log."),
    "StateCorrupted": ("StateUnusable", "See the worker's log."),
    "ProcessingFailed": ("ProcessingFailed", "Correct the application or set processing.exception.handler."),
}
#: The environment's fault rather than the revision's: another revision would fare no better.
_NOT_THE_REVISIONS = frozenset({"BrokerUnreachable", "Unschedulable"})


@dataclass(frozen=True)
class Problem:
    """Why a worker does not work."""

    reason: str
    message: str
    settled: bool = False
    """Whether it will not go away by waiting a little."""

    @property
    def blames_revision(self) -> bool:
        """Whether another revision might do better."""
        return self.reason not in _NOT_THE_REVISIONS


def of_pod(pod: Mapping[str, Any]) -> Problem | None:
    """What is wrong with a pod; None when nothing is, as far as its status tells."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        found = _of_container(name, container, pod)
        if found is not None:
            return found
    for condition in status.get("conditions", ()):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return Problem(
                "Unschedulable",
                f"Pod {name} fits on no node: {_short(condition.get('message', ''))}. Change spec.resources, spec.pod "
                "or the cluster.",
            )
    if status.get("phase") == "Failed":
        return Problem("PodFailed", f"Pod {name} failed: {_short(status.get('message') or status.get('reason', ''))}.")
    return None


def of_worker(name: str, reason: str, message: str) -> Problem:
    """What a running worker says of itself.

    Args:
        name: of the worker.
        reason: the class of the error it waits for the end of.
        message: its sentence.
    """
    known, _ = _BY_ERROR.get(reason, ("WorkerWaits", ""))
    return Problem(known, f"Worker {name}: {_short(message)}")


def mount_problem(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Why the volumes of a pod cannot be mounted, by the events about it: nothing else tells."""
    name = pod["metadata"]["name"]
    for event in events:
        message = event.get("message", "")
        if event.get("reason") != "FailedMount" or event.get("involvedObject", {}).get("uid") != pod["metadata"]["uid"]:
            continue
        if 'secret "' in message and "not found" in message:
            secret = message.split('secret "', 1)[1].split('"', 1)[0]
            return Problem(
                "SecretMissing",
                f"Secret '{secret}' does not exist, and pod {name} waits for it: create it in the namespace "
                f"{pod['metadata']['namespace']}, or correct its name in the StreamApp.",
            )
        if 'configmap "' in message and "not found" in message:
            wanted = message.split('configmap "', 1)[1].split('"', 1)[0]
            return Problem(
                "ConfigMapMissing",
                f"ConfigMap '{wanted}' does not exist, and pod {name} waits for it: create it in the namespace "
                f"{pod['metadata']['namespace']}, or correct its name in the StreamApp.",
            )
        return Problem("VolumeNotMountable", f"A volume of pod {name} cannot be mounted: {_short(message)}.")
    return None


def _of_container(pod: str, container: Mapping[str, Any], whole: Mapping[str, Any]) -> Problem | None:
    state = container.get("state", {})
    waiting = state.get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE:
        return Problem(
            "ImageNotPullable",
            f"The image '{container.get('image') or _image_of(whole)}' cannot be pulled ({_short(message) or reason}): correct "
            "spec.image, or name the registry's credentials in spec.imagePullSecrets.",
            settled=reason != "ErrImagePull",
        )
    if reason == "CreateContainerConfigError":
        return _unconfigurable(pod, message, whole)
    if reason in _CONTAINER:
        return Problem(
            "ContainerCannotStart",
            f"The container of pod {pod} cannot start ({_short(message) or reason}): the image has to have millpond on its "
            "PATH; build it from the worker's image.",
            settled=True,
        )
    ended = state.get("terminated")
    if ended is None and not container.get("ready"):
        ended = (container.get("lastState") or {}).get("terminated")
    if ended is None:
        return None
    restarts = int(container.get("restartCount", 0))
    if ended.get("exitCode") == 0:
        return None
    return _ended(pod, ended, settled=restarts >= _SETTLED_AFTER or reason == "CrashLoopBackOff")


#: A worker that failed so often will do so again.
_SETTLED_AFTER = 2


def _ended(pod: str, ended: Mapping[str, Any], *, settled: bool) -> Problem:
    told = _told(ended.get("message", ""))
    if told is not None:
        error, sentence = told
        reason, cure = _BY_ERROR.get(error, ("WorkerFailed", ""))
        return Problem(reason, f"Worker {pod} failed: {_short(sentence)} {cure}".rstrip(), settled)
    if ended.get("reason") == "OOMKilled":
        return Problem(
            "OutOfMemory",
            f"Worker {pod} used more memory than it may: raise spec.resources.limits.memory, or lower the caches in "
            "spec.config.",
            settled,
        )
    last = _short((ended.get("message") or "").strip().rpartition("\n")[2]) or ended.get("reason", "")
    how = f"status {ended.get('exitCode')}" if not ended.get("signal") else f"signal {ended['signal']}"
    return Problem(
        "WorkerFailed", f"Worker {pod} ended with {how}: {last}. See kubectl logs --previous {pod}.", settled
    )


def _told(message: str) -> tuple[str, str] | None:
    """What a worker wrote down of its own end: the class of its error, and the sentence."""
    line = message.strip().rpartition("\n")[2]
    try:
        told = json.loads(line)
        return str(told["reason"]), str(told["message"])
    except (ValueError, TypeError, KeyError):
        return None


def _unconfigurable(pod: str, message: str, whole: Mapping[str, Any]) -> Problem:
    namespace = whole["metadata"]["namespace"]
    for kind, reason in (("secret", "SecretMissing"), ("configmap", "ConfigMapMissing")):
        if message.startswith(f'{kind} "'):
            return Problem(
                reason,
                f"{_short(message).capitalize()}, and pod {pod} waits for it: create it in the namespace {namespace}, or "
                "correct its name in the StreamApp.",
            )
        if f"in {kind} " in message.lower():
            return Problem(
                reason,
                f"Pod {pod} waits: {_short(message)}. Add the key, or correct it in the StreamApp.",
            )
    return Problem(
        "ContainerCannotStart",
        f"The container of pod {pod} cannot be made: {_short(message)}. Correct the StreamApp.",
        settled=True,
    )


def _image_of(pod: Mapping[str, Any]) -> str:
    containers = pod.get("spec", {}).get("containers", ())
    return str(containers[0].get("image", "")) if containers else ""


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST else f"{flat[:_LONGEST]}…"
