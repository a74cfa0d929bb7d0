"""Problems that conditions report: their type, and those of pods, workers and Jobs, each with its cure.

They are read from the pod's status, from events, and from what workers report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond_operator.kubernetes import shortened

__all__ = (
    "REPORTED_BY_WORKERS",
    "Problem",
    "cleanup_problem",
    "creation_problem",
    "mount_problem",
    "of_pod",
    "of_worker",
    "silence",
    "termination_error",
    "unlabelled",
)

_REASON = re.compile(r"[A-Za-z]\w{0,99}", re.ASCII)
_IMAGE_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
_CONTAINER_REASONS = frozenset({"CreateContainerError", "RunContainerError", "StartError", "ContainerCannotRun"})

#: The reason for each class of error that ends a worker, with the cure where the error message has none.
_BY_ERROR = {
    "ApplicationError": ("ApplicationNotImportable", "Correct spec.topology, or the application in the image."),
    "TopologyError": ("TopologyInvalid", "Correct the application, and set spec.image to the new image."),
    "ConfigError": ("ConfigurationInvalid", "Correct spec.config."),
    "BrokerError": ("BrokerUnreachable", "Check spec.kafka.bootstrapServers, and that the brokers can be reached."),
    "TopicError": ("TopicInvalid", "Create or correct the topic."),
    "TopicChanged": ("PartitionsUnread", ""),
    "TopicAtRisk": ("TopicsUnreplicated", ""),
    "OffsetsLost": ("OffsetsLost", "See the worker's log for the commands, and choose one."),
    "OwnershipError": ("OwnershipLost", "Make sure that no other application uses this applicationId."),
    "StateError": ("StateUnusable", "See the worker's log."),
    "StateDirectoryLocked": ("StateUnusable", "See the worker's log."),
    "StateCorrupted": ("StateUnusable", "See the worker's log."),
    "ProcessingFailed": ("ProcessingFailed", "Correct the application or set processing.exception.handler."),
}
#: Problems that stop no worker.
_WARNINGS = frozenset({"PartitionsUnread", "TopicsUnreplicated"})
#: Problems of the environment, which another revision would have as well: a rollout is not rolled back because of them.
_NOT_THE_REVISIONS = frozenset(
    {
        "ApplicationIdTaken",
        "BrokerUnreachable",
        "OffsetsLost",
        "PartitionsUnread",
        "TopicsUnreplicated",
        "Unschedulable",
        "VolumeNotExpandable",
        "WorkerSilent",
    }
)
#: Reasons that workers report by heartbeats, or by sending none. Some are reported of ended containers as well.
REPORTED_BY_WORKERS = frozenset({reason for reason, _ in _BY_ERROR.values()} | {"WorkerSilent", "WorkerWaits"})
#: How long a problem that may go away by itself lasts before it is reported, such as an unbound volume or one crash.
_TRANSIENT_FOR = timedelta(seconds=10)
#: A silent worker is reported sooner, since its session timeout has passed already.
_SILENT_FOR = timedelta(seconds=4)

_CREATION = frozenset({"FailedCreate", "SuccessfulCreate"})
_CURES = {
    "exceeded quota": "Raise the namespace's quota, or lower spec.replicas or spec.resources.",
    "violates PodSecurity": "Change spec.pod, or the Pod Security labels of the namespace.",
    "no PriorityClass": "Correct spec.pod.priorityClassName, or create the class.",
    "admission webhook": "Ask the owner of the webhook for its rules.",
    "failed calling webhook": "The API server cannot reach the webhook: tell its owner.",
}
"""The cure for a pod that cannot be created, by words of the rejection."""
_AFTER_MOUNTING = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""Reasons of events about the steps of a kubelet after all volumes are mounted."""


@dataclass(frozen=True)
class Problem:
    """A problem to report in a condition."""

    reason: str
    message: str
    persistent: bool = False
    """Whether it will not go away by itself."""
    is_failure: bool = False
    """Whether a worker ended with an error. It is over once the worker is ready again."""

    @property
    def patience(self) -> timedelta:
        """The time for which the problem has to last before it is reported."""
        if self.persistent:
            return timedelta(0)
        return _SILENT_FOR if self.reason == "WorkerSilent" else _TRANSIENT_FOR

    @property
    def is_warning(self) -> bool:
        """Whether the worker runs all the same."""
        return self.reason in _WARNINGS

    @property
    def blames_revision(self) -> bool:
        """Whether the revision may be the cause, so that another one might not have the problem."""
        return self.reason not in _NOT_THE_REVISIONS


def of_pod(pod: Mapping[str, Any]) -> Problem | None:
    """Return the problem that a pod's status shows; None when it shows none."""
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
                    f"The scheduler cannot bind pod {name} to a node: {_clause(condition.get('message', ''))}. "
                    "See the pod's events.",
                )
            return Problem(
                "Unschedulable",
                f"Pod {name} does not fit on any node: {_clause(condition.get('message', ''))}. "
                "Change spec.resources, spec.pod or the cluster.",
            )
    if status.get("phase") == "Failed":
        return Problem("PodFailed", f"Pod {name} failed: {_clause(status.get('message') or status.get('reason', ''))}.")
    return None


def of_worker(name: str, reason: str, message: str) -> Problem:
    """Return the problem that a running worker reports.

    Args:
        name: the name of the worker.
        reason: the class of the error that the worker is waiting to go away.
        message: the error's message.
    """
    known, cure = _BY_ERROR.get(reason, ("WorkerWaits", ""))
    does = "runs, and warns" if known in _WARNINGS else "is waiting"
    return Problem(known, f"Worker {name} {does}: {shortened(message)} {cure}".rstrip())


def silence(name: str, node: str, session_timeout: str) -> Problem:
    """Return the problem of a worker that sends no heartbeats although its container runs.

    Args:
        name: the name of the worker.
        node: the node of its pod.
        session_timeout: `spec.sessionTimeout` as it is written in the StreamApp.
    """
    return Problem(
        "WorkerSilent",
        f"Worker {name} has sent no heartbeat for longer than spec.sessionTimeout ({session_timeout}), so other "
        f"workers run its tasks: check node {node}, and that the pod can reach the operator.",
    )


def mount_problem(pod: Mapping[str, Any], events: Iterable[Mapping[str, Any]], of: str = "StreamApp") -> Problem | None:
    """Return why the volumes of a pod cannot be mounted. Only events contain the reason.

    Args:
        pod: a pod whose containers have not been created.
        events: all events about it.
        of: the kind of object that the pod belongs to, for the message.
    """
    name = pod["metadata"]["name"]
    events = [event for event in events if event.get("involvedObject", {}).get("uid") == pod["metadata"]["uid"]]
    if any(event.get("reason") in _AFTER_MOUNTING for event in events):
        return None  # the volumes were mounted in the end
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
    """Return why a missing pod cannot be created. The StatefulSet controller reports that only as events.

    Args:
        name: the name of the pod.
        events: all events about the StatefulSet.
    """
    about = (event for event in sorted(events, key=_last_seen) if f" Pod {name} " in event.get("message", ""))
    last = next((event for event in reversed([*about]) if event.get("reason") in _CREATION), None)
    if last is None or last["reason"] != "FailedCreate":
        return None
    why = last["message"].partition("failed error: ")[2] or last["message"]
    if why.endswith("already exists"):
        return None  # another pod has the name; `unlabelled` reports it
    cure = next(
        (cure for words, cure in _CURES.items() if words in why), "Check what in the namespace or spec.pod forbids it."
    )
    return Problem("PodNotCreated", f"Pod {name} cannot be created: {_clause(why)}. {cure}")


def unlabelled(name: str, wanted: Mapping[str, str], labels: Mapping[str, str]) -> Problem | None:
    """Return the problem of a pod that lacks labels, so that it does not count as a worker; None when it has them all.

    Args:
        name: the name of the pod.
        wanted: the labels of the application's workers.
        labels: the labels of the pod.
    """
    lacks = [f"{key}={value}" for key, value in wanted.items() if labels.get(key) != value]
    if not lacks:
        return None
    return Problem(
        "PodNotRecognized",
        f"Pod {name} lacks the labels {', '.join(lacks)}, so it does not count as a worker, and blocks the name of "
        f"one: run 'kubectl label pod {name} --overwrite {' '.join(lacks)}', or delete the pod.",
    )


def _last_seen(event: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the sort key of events: the last occurrence; within one second, those about missing objects come last."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time)[:19] for time in times if time), ""), "not found" in event.get("message", "")


def cleanup_problem(job: Mapping[str, Any] | None, pods: Iterable[Mapping[str, Any]]) -> Problem | None:
    """Return why the internal topics and the consumer group of an application cannot be deleted.

    Args:
        job: the Job that deletes them; None when there is none yet.
        pods: the pods of that Job.
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
        why = "the Job took too long; check that the image can be pulled and that the brokers can be reached."
    else:
        why = f"see the log of Job '{name}'."
    retry = f"Delete Job '{name}' to try again" if gave_up is not None else "The Job retries"
    return Problem(
        "CleanupFailed",
        f"Internal topics and the consumer group could not be deleted: {why} {retry}, or set spec.deletion.kafka to "
        "Retain to keep them.",
        persistent=True,
    )


def _of_container(pod: str, container: Mapping[str, Any], whole: Mapping[str, Any]) -> Problem | None:
    state = container.get("state", {})
    waiting = state.get("waiting") or {}
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE_REASONS:
        image = container.get("image") or _image_of(whole)
        return Problem(
            "ImageNotPullable",
            f"The image '{image}' cannot be pulled ({shortened(message) or reason}): correct spec.image, or name the "
            "registry's credentials in spec.imagePullSecrets.",
            persistent=reason != "ErrImagePull",
        )
    if reason == "CreateContainerConfigError":
        return _unconfigurable(pod, message, whole)
    if reason in _CONTAINER_REASONS:
        return Problem(
            "ContainerCannotStart",
            f"The container of pod {pod} cannot start ({shortened(message) or reason}): the image must have the "
            "command millpond on its PATH; build it from the worker image.",
            persistent=True,
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
    return _ended(pod, who, ended, persistent=restarts >= _PERSISTENT_RESTARTS or reason == "CrashLoopBackOff")


#: The number of restarts from which on a failure counts as persistent.
_PERSISTENT_RESTARTS = 2


def _ended(pod: str, who: str, ended: Mapping[str, Any], *, persistent: bool) -> Problem:
    found = termination_error(ended.get("message", ""))
    if found is not None:
        error, message = found
        reason, cure = _BY_ERROR.get(error, ("WorkerFailed", ""))
        return Problem(reason, f"{who} failed: {shortened(message)} {cure}".rstrip(), persistent, is_failure=True)
    if ended.get("reason") == "OOMKilled":
        return Problem(
            "OutOfMemory",
            f"{who} used more memory than its limit: raise spec.resources.limits.memory, or lower the caches in "
            "spec.config.",
            persistent,
            is_failure=True,
        )
    last = shortened((ended.get("message") or "").strip().rpartition("\n")[2]) or ended.get("reason", "")
    how = f"exit code {ended.get('exitCode')}" if not ended.get("signal") else f"signal {ended['signal']}"
    return Problem(
        "WorkerFailed",
        f"{who} ended with {how}: {last}. See kubectl logs --previous {pod}.",
        persistent,
        is_failure=True,
    )


def termination_error(message: str) -> tuple[str, str] | None:
    """Return the class and the message of the error in a container's termination message.

    None when it contains something else: any code in the container may write it, and the API server rejects a status
    whose reason is not one word.
    """
    line = message.strip().rpartition("\n")[2]
    try:
        error = json.loads(line)
        reason, text = str(error["reason"]), str(error["message"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    # JSON can contain lone surrogates, which cannot be sent as UTF-8.
    text = text.encode("utf-8", "replace").decode()
    return (reason, text) if _REASON.fullmatch(reason) and text.strip() else None


def _clause(message: str) -> str:
    """Return a quoted message, shortened and without its full stop, for use inside a sentence."""
    return shortened(message).rstrip(". ")


def _missing(kind: str, message: str, pod: Mapping[str, Any], of: str = "StreamApp") -> Problem:
    """Return the problem of a message such as ``secret "its-name" not found``."""
    name = message.split(f'{kind.lower()} "', 1)[1].split('"', 1)[0]
    metadata = pod["metadata"]
    return Problem(
        f"{kind}Missing",
        f"{kind} '{name}' does not exist, and pod {metadata['name']} is waiting for it: create it in the namespace "
        f"{metadata['namespace']}, or correct its name in the {of}.",
    )


def _unconfigurable(pod: str, message: str, whole: Mapping[str, Any]) -> Problem:
    for kind in ("Secret", "ConfigMap"):
        if message.startswith(f'{kind.lower()} "'):
            return _missing(kind, message, whole)
        if f"in {kind.lower()} " in message.lower():
            return Problem(
                f"{kind}Missing",
                f"Pod {pod} is waiting: {_clause(message)}. Add the key, or correct it in the StreamApp.",
            )
    return Problem(
        "ContainerCannotStart",
        f"The container of pod {pod} cannot be created: {_clause(message)}. Correct the StreamApp.",
        persistent=True,
    )


def _image_of(pod: Mapping[str, Any]) -> str:
    containers = pod.get("spec", {}).get("containers", ())
    return str(containers[0].get("image", "")) if containers else ""
