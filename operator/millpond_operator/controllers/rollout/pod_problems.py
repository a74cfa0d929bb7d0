"""What keeps a pod from doing its work, in one sentence with the cure: read from the pod's own status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond_operator.kubernetes import shortened

__all__ = (
    "TOLD_BY_WORKERS",
    "Problem",
    "cleanup_problem",
    "creation_problem",
    "mount_problem",
    "of_pod",
    "of_worker",
    "silence",
    "told",
    "unlabelled",
)

_WORD = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
_CONTAINER = frozenset({"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"})

#: Reasons by the class of the error that ended the worker, with what to do when its sentence does not say so.
_BY_ERROR = {
    "ApplicationError": ("ApplicationNotImportable", "Correct spec.topology, or the application in the image."),
    "TopologyError": ("TopologyInvalid", "Correct the application, and set spec.image to the new image."),
    "ConfigError": ("ConfigurationInvalid", "Correct spec.config."),
    "BrokerError": ("BrokerUnreachable", "Check spec.kafka.bootstrapServers, and that the brokers can be reached."),
    "TopicError": ("TopicInvalid", "Create or correct the topic."),
    "TopicChanged": ("PartitionsUnread", ""),
    "OwnershipError": ("OwnershipLost", "See that no other application uses this applicationId."),
    "StateError": ("StateUnusable", "See the worker's log."),
    "StateDirectoryLocked": ("StateUnusable", "See the worker's log."),
    "StateCorrupted": ("StateUnusable", "See the worker's log."),
    "ProcessingFailed": ("ProcessingFailed", "Correct the application or set processing.exception.handler."),
}
#: The environment's fault rather than the revision's: another revision would fare no better.
_NOT_THE_REVISIONS = frozenset(
    {
        "ApplicationIdTaken",
        "BrokerUnreachable",
        "PartitionsUnread",
        "Unschedulable",
        "VolumeNotExpandable",
        "WorkerSilent",
    }
)
#: What only workers tell, in their heartbeats or by sending none. Others say the same of containers that ended.
TOLD_BY_WORKERS = frozenset({reason for reason, _ in _BY_ERROR.values()} | {"WorkerSilent", "WorkerWaits"})
#: What may pass by itself is told once it has lasted so long: a volume is bound at the second try, a restart ends a crash.
_PASSES_IN = timedelta(seconds=10)
#: A worker that is silent was waited for already.
_SILENCE_PASSES_IN = timedelta(seconds=4)


_CREATION = frozenset({"FailedCreate", "SuccessfulCreate"})
_CURES = {
    "exceeded quota": "Raise the namespace's quota, or lower spec.replicas or spec.resources.",
    "violates PodSecurity": "Change spec.pod, or what the namespace's Pod Security labels demand.",
    "no PriorityClass": "Correct spec.pod.priorityClassName, or create the class.",
    "admission webhook": "See whose webhook that is; its owner knows what it demands.",
    "failed calling webhook": "See whose webhook that is: the API server cannot reach it.",
}
"""What to do about a pod that cannot be created, by words of the refusal."""
_AFTER_MOUNTING = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""Reasons of events about what a kubelet does once all volumes are mounted."""


@dataclass(frozen=True)
class Problem:
    """Why a worker does not work."""

    reason: str
    message: str
    settled: bool = False
    """Whether it will not go away by waiting a little."""

    @property
    def patience(self) -> timedelta:
        """How long it has to last before it is told."""
        if self.settled:
            return timedelta(0)
        return _SILENCE_PASSES_IN if self.reason == "WorkerSilent" else _PASSES_IN

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
            if condition.get("reason") == "SchedulerError":
                return Problem(
                    "Unschedulable",
                    f"The scheduler cannot bind pod {name} to a node: {_clause(condition.get('message', ''))}. See the pod's "
                    "events.",
                )
            return Problem(
                "Unschedulable",
                f"Pod {name} fits on no node: {_clause(condition.get('message', ''))}. Change spec.resources, spec.pod "
                "or the cluster.",
            )
    if status.get("phase") == "Failed":
        return Problem("PodFailed", f"Pod {name} failed: {_clause(status.get('message') or status.get('reason', ''))}.")
    return None


def of_worker(name: str, reason: str, message: str) -> Problem:
    """What a running worker says of itself.

    Args:
        name: of the worker.
        reason: the class of the error it waits for the end of.
        message: its sentence.
    """
    known, cure = _BY_ERROR.get(reason, ("WorkerWaits", ""))
    return Problem(known, f"Worker {name} waits: {shortened(message)} {cure}".rstrip())


def silence(name: str, node: str, session_timeout: str) -> Problem:
    """Return the problem of a worker that sends no heartbeats although its container runs.

    Args:
        name: of the worker.
        node: that its pod is on.
        session_timeout: of the StreamApp, as it is written there.
    """
    return Problem(
        "WorkerSilent",
        f"Worker {name} has sent no heartbeat for longer than spec.sessionTimeout ({session_timeout}), and other workers run its "
        f"tasks: see node {node}, and that the pod reaches the operator.",
    )


def mount_problem(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]], of: str = "StreamApp") -> Problem | None:
    """Why the volumes of a pod cannot be mounted, by the events about it: nothing else tells.

    Args:
        pod: whose containers are not made.
        events: about it, all that there are.
        of: the kind of object that it was made for.
    """
    name = pod["metadata"]["name"]
    events = [event for event in events if event.get("involvedObject", {}).get("uid") == pod["metadata"]["uid"]]
    if any(event.get("reason") in _AFTER_MOUNTING for event in events):
        return None  # it could not be at first, and then it could
    for event in sorted(events, key=_last_seen, reverse=True):
        message = event.get("message", "")
        if event.get("reason") != "FailedMount":
            continue
        if 'secret "' in message and "not found" in message:
            return _missing("Secret", message, pod, of)
        if 'configmap "' in message and "not found" in message:
            return _missing("ConfigMap", message, pod, of)
        return Problem("VolumeNotMountable", f"A volume of pod {name} cannot be mounted: {_clause(message)}.")
    return None


def creation_problem(name: str, events: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Why a pod that should be there cannot be made: its StatefulSet's controller tells it in events only.

    Args:
        name: of the pod.
        events: about the StatefulSet, all that there are.
    """
    about = (event for event in sorted(events, key=_last_seen) if f" Pod {name} " in event.get("message", ""))
    last = next((event for event in reversed([*about]) if event.get("reason") in _CREATION), None)
    if last is None or last["reason"] != "FailedCreate":
        return None
    why = last["message"].partition("failed error: ")[2] or last["message"]
    if why.endswith("already exists"):
        return None  # why another pod has its name, that pod tells
    cure = next(
        (cure for words, cure in _CURES.items() if words in why), "See what of the namespace or of spec.pod forbids it."
    )
    return Problem("PodNotCreated", f"Pod {name} cannot be created: {_clause(why)}. {cure}")


def unlabelled(name: str, wanted: Mapping[str, str], labels: Mapping[str, str]) -> Problem | None:
    """Say that a pod is not known for the application's, since it lacks its labels.

    Args:
        name: of the pod.
        wanted: labels by which it is known.
        labels: that it has.
    """
    lacks = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
    if not lacks:
        return None
    return Problem(
        "PodNotRecognized",
        f"Pod {name} lacks the labels {', '.join(lacks)}, so it is not known for a worker's, and no other can have its name: run "
        f"'kubectl label pod {name} --overwrite {' '.join(lacks)}', or delete the pod.",
    )


def _last_seen(event: Mapping[str, Any]) -> tuple[str, bool]:
    """Orders events by when they happened last. Of those within one second, who names what is missing knows more."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time)[:19] for time in times if time), ""), "not found" in event.get("message", "")


def cleanup_problem(job: Mapping[str, Any] | None, pods: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Why what an application has in Kafka is not deleted.

    Args:
        job: that deletes it; None when there is none yet.
        pods: of that Job.
    """
    if job is None:
        return None
    name, conditions = job["metadata"]["name"], job.get("status", {}).get("conditions") or ()
    gave_up = next((each for each in conditions if each.get("type") == "Failed" and each.get("status") == "True"), None)
    newest_first = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    found = next((problem for pod in newest_first if (problem := of_pod(pod)) is not None), None)
    if found is not None:
        why = found.message
    elif gave_up is None:
        return None
    elif gave_up.get("reason") == "DeadlineExceeded":
        why = "it took too long; see that the image can be pulled, and that the brokers can be reached."
    else:
        why = f"see the log of Job '{name}'."
    again = f"Delete Job '{name}' to try again" if gave_up is not None else "It is tried again"
    return Problem(
        "CleanupFailed",
        f"Internal topics and the consumer group could not be deleted: {why} {again}, or set spec.deletion.kafka to Retain "
        "to let them be.",
        settled=True,
    )


def _of_container(pod: str, container: Mapping[str, Any], whole: Mapping[str, Any]) -> Problem | None:
    state = container.get("state", {})
    waiting = state.get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE:
        return Problem(
            "ImageNotPullable",
            f"The image '{container.get('image') or _image_of(whole)}' cannot be pulled ({shortened(message) or reason}): correct "
            "spec.image, or name the registry's credentials in spec.imagePullSecrets.",
            settled=reason != "ErrImagePull",
        )
    if reason == "CreateContainerConfigError":
        return _unconfigurable(pod, message, whole)
    if reason in _CONTAINER:
        return Problem(
            "ContainerCannotStart",
            f"The container of pod {pod} cannot start ({shortened(message) or reason}): the image has to have millpond on its "
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
    labels = whole["metadata"].get("labels") or {}
    who = f"{'Pod' if labels.get('app.kubernetes.io/component') == 'cleanup' else 'Worker'} {pod}"
    return _ended(pod, who, ended, settled=restarts >= _SETTLED_AFTER or reason == "CrashLoopBackOff")


#: A worker that failed so often will do so again.
_SETTLED_AFTER = 2


def _ended(pod: str, who: str, ended: Mapping[str, Any], *, settled: bool) -> Problem:
    found = told(ended.get("message", ""))
    if found is not None:
        error, sentence = found
        reason, cure = _BY_ERROR.get(error, ("WorkerFailed", ""))
        return Problem(reason, f"{who} failed: {shortened(sentence)} {cure}".rstrip(), settled)
    if ended.get("reason") == "OOMKilled":
        return Problem(
            "OutOfMemory",
            f"{who} used more memory than it may: raise spec.resources.limits.memory, or lower the caches in "
            "spec.config.",
            settled,
        )
    last = shortened((ended.get("message") or "").strip().rpartition("\n")[2]) or ended.get("reason", "")
    how = f"status {ended.get('exitCode')}" if not ended.get("signal") else f"signal {ended['signal']}"
    return Problem("WorkerFailed", f"{who} ended with {how}: {last}. See kubectl logs --previous {pod}.", settled)


def told(message: str) -> tuple[str, str] | None:
    """Return what a command wrote down of its own end: the class of its error, and the sentence.

    None when it wrote something else: whoever runs code in the container may write anything, and the API server refuses a
    status whose reason is no word.
    """
    line = message.strip().rpartition("\n")[2]
    try:
        words = json.loads(line)
        reason, sentence = str(words["reason"]), str(words["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # Half of a character, which JSON can name and nobody can send.
    sentence = sentence.encode("utf-8", "replace").decode()
    return (reason, sentence) if _WORD.fullmatch(reason) and sentence.strip() else None


def _clause(message: str) -> str:
    """Somebody else's words, inside of a sentence of ours: without their full stop."""
    return shortened(message).rstrip(". ")


def _missing(kind: str, message: str, pod: Mapping[str, Any], of: str = "StreamApp") -> Problem:
    """What a message calls ``secret "its-name" not found``."""
    name = message.split(f'{kind.lower()} "', 1)[1].split('"', 1)[0]
    metadata = pod["metadata"]
    return Problem(
        f"{kind}Missing",
        f"{kind} '{name}' does not exist, and pod {metadata['name']} waits for it: create it in the namespace "
        f"{metadata['namespace']}, or correct its name in the {of}.",
    )


def _unconfigurable(pod: str, message: str, whole: Mapping[str, Any]) -> Problem:
    for kind in ("Secret", "ConfigMap"):
        if message.startswith(f'{kind.lower()} "'):
            return _missing(kind, message, whole)
        if f"in {kind.lower()} " in message.lower():
            return Problem(
                f"{kind}Missing",
                f"Pod {pod} waits: {_clause(message)}. Add the key, or correct it in the StreamApp.",
            )
    return Problem(
        "ContainerCannotStart",
        f"The container of pod {pod} cannot be made: {_clause(message)}. Correct the StreamApp.",
        settled=True,
    )


def _image_of(pod: Mapping[str, Any]) -> str:
    containers = pod.get("spec", {}).get("containers", ())
    return str(containers[0].get("image", "")) if containers else ""
