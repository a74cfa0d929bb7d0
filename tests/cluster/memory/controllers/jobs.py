"""Pods of Jobs."""

from __future__ import annotations

import random
from datetime import datetime

from tests.cluster.memory.controllers.base import Controller, Object, changed, controller_of, owner_reference
from tests.cluster.memory.store import Change

__all__ = ("Jobs",)

_FINALIZER = "batch.kubernetes.io/job-tracking"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 600.0


class Jobs(Controller):
    """The controller of Jobs: one pod at a time where the Job does not say otherwise."""

    def heard(self, change: Change) -> None:
        item = change.entry.object
        metadata = item["metadata"]
        if change.kind.kind == "Job":
            self.add(metadata["namespace"], metadata["name"])
            if change.type == "DELETED":
                for pod in self.cluster.list("Pod", metadata["namespace"]):
                    owner = controller_of(pod)
                    if owner is not None and owner["uid"] == metadata["uid"]:
                        self._release(pod)
        elif change.kind.kind == "Pod":
            owner = controller_of(item)
            if owner is not None and owner["kind"] == "Job":
                self.add(metadata["namespace"], owner["name"])
            elif owner is None and _FINALIZER in (metadata.get("finalizers") or ()):
                self.cluster.loop.call_soon(self._release_now, metadata["namespace"], metadata["name"])

    def _release_now(self, namespace: str, name: str) -> None:
        pod = self.cluster.find("Pod", namespace, name)
        if pod is not None and controller_of(pod) is None:
            self._release(pod)

    def _release(self, pod: Object) -> None:
        there = self.cluster.find("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])
        if there is None or there["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        finalizers = there["metadata"].get("finalizers") or []
        if _FINALIZER in finalizers:
            kept = [each for each in finalizers if each != _FINALIZER]
            self.cluster.rewrite(self.cluster.kind("Pod"), there, finalizers=kept or None)

    def look(self, namespace: str, name: str) -> None:
        cluster = self.cluster
        job = cluster.find("Job", namespace, name)
        if job is None:
            return
        uid = job["metadata"]["uid"]
        pods = [
            pod
            for pod in cluster.list("Pod", namespace)
            if (owner := controller_of(pod)) is not None and owner["uid"] == uid
        ]
        status = changed(job.get("status") or {})
        if any(
            each["type"] in {"Complete", "Failed"} and each["status"] == "True"
            for each in status.get("conditions") or ()
        ):
            for pod in pods:
                self._release(pod)
            self._forget_later(job)
            return
        if "deletionTimestamp" in job["metadata"]:
            for pod in pods:
                self._release(pod)
            return
        self._step(job, pods, status)
        if status != (job.get("status") or {}):
            cluster.update("Job", {**job, "status": status}, "status")

    def _step(self, job: Object, pods: list[Object], status: Object) -> None:
        spec, namespace, name = job["spec"], job["metadata"]["namespace"], job["metadata"]["name"]
        now = self.cluster.stamp()
        if not spec.get("suspend"):
            status.setdefault("startTime", now)
        counted = status.setdefault("uncountedTerminatedPods", {})
        counted.clear()
        phases = {pod["metadata"]["name"]: _phase(pod) for pod in pods}
        for pod in pods:
            phase = phases[pod["metadata"]["name"]]
            if phase in {"Succeeded", "Failed"} and _FINALIZER in (pod["metadata"].get("finalizers") or ()):
                status[phase.lower()] = status.get(phase.lower(), 0) + 1
                self._release(pod)
            elif phase == "Active" and pod["metadata"].get("deletionGracePeriodSeconds") == 0:
                self._release(pod)  # its kubelet is through with it
        active = [
            pod
            for pod in pods
            if phases[pod["metadata"]["name"]] == "Active" and "deletionTimestamp" not in pod["metadata"]
        ]
        terminating = [
            pod
            for pod in pods
            if "deletionTimestamp" in pod["metadata"] and phases[pod["metadata"]["name"]] == "Active"
        ]
        succeeded, failed = status.get("succeeded", 0), status.get("failed", 0)
        wanted = spec.get("completions", 1)
        left = self._left_s(job, status)
        if failed > spec.get("backoffLimit", 6):
            self._end(
                job, active, status, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        elif left is not None and left <= 0:
            self._end(
                job, active, status, "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            )
        elif succeeded >= wanted:
            self._end(
                job, active, status, "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
            )
            status["completionTime"] = now
        else:
            if left is not None:
                self.add_later(left + 0.01, namespace, name)
            if spec.get("suspend"):
                self._suspend(job, active, status)
            else:
                self._fill(
                    job,
                    active,
                    pods,
                    min(spec.get("parallelism", 1), wanted - succeeded) - len(active) - len(terminating),
                    status,
                )
                active = active if status.pop("_made", 0) == 0 else [*active, {}]
            _set(status, "active", len(active))
            status["terminating"] = len(terminating)
            status["ready"] = sum(1 for pod in active if pod and _ready(pod))
            return
        _set(status, "active", 0)
        status["terminating"] = status["ready"] = 0

    def _fill(self, job: Object, active: list[Object], pods: list[Object], missing: int, status: Object) -> None:
        if missing <= 0:
            return
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        ends = [_ended(pod) for pod in pods if _phase(pod) == "Failed"]
        if ends:
            pause = min(_FIRST_BACKOFF_S * 2 ** (status.get("failed", 1) - 1), _LONGEST_BACKOFF_S)
            left = max(ends) + pause - self.cluster.now().timestamp()
            if left > 0:
                self.add_later(left, namespace, name)
                return
        template = changed(job["spec"]["template"])
        metadata = template.get("metadata", {})
        suffix = "".join(random.choices(_LETTERS, k=5))
        pod = {
            "metadata": {
                **{key: metadata[key] for key in ("labels", "annotations") if key in metadata},
                "name": f"{name[:57]}-{suffix}",
                "generateName": f"{name}-",
                "namespace": namespace,
                "finalizers": [_FINALIZER],
                "ownerReferences": [owner_reference(job)],
            },
            "spec": template["spec"],
        }
        made = self.cluster.create("Pod", pod)
        status["_made"] = 1
        self.cluster.event(
            job, "SuccessfulCreate", f"Created pod: {made['metadata']['name']}", component="job-controller"
        )

    def _end(self, job: Object, active: list[Object], status: Object, type: str, reason: str, message: str) -> None:
        for pod in active:
            self._release(pod)
            self.cluster.delete(self.cluster.kind("Pod"), pod)
        now = self.cluster.stamp()
        first = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}[type]
        told = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": reason, "message": message}
        status["conditions"] = [*(status.get("conditions") or ()), {"type": first, **told}, {"type": type, **told}]
        if type == "Complete":
            self.cluster.event(job, "Completed", "Job completed", component="job-controller")
        else:
            self.cluster.event(job, reason, message, type="Warning", component="job-controller")

    def _suspend(self, job: Object, active: list[Object], status: Object) -> None:
        for pod in active:
            self.cluster.delete(self.cluster.kind("Pod"), pod)
        conditions = status.setdefault("conditions", [])
        if not any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions):
            now = self.cluster.stamp()
            told = {"reason": "JobSuspended", "message": "Job suspended"}
            conditions.append(
                {"type": "Suspended", "status": "True", "lastProbeTime": now, "lastTransitionTime": now, **told}
            )
            status.pop("startTime", None)
            self.cluster.event(job, "Suspended", "Job suspended", component="job-controller")

    def _left_s(self, job: Object, status: Object) -> float | None:
        seconds = job["spec"].get("activeDeadlineSeconds")
        if seconds is None or "startTime" not in status:
            return None
        began = datetime.fromisoformat(status["startTime"]).timestamp()
        return float(began + seconds - self.cluster.now().timestamp())

    def _forget_later(self, job: Object) -> None:
        """Nothing: the TTL controller is not among the controllers of the tests' clusters."""


def _set(status: Object, field: str, value: int) -> None:
    if value:
        status[field] = value
    else:
        status.pop(field, None)


def _phase(pod: Object) -> str:
    phase = (pod.get("status") or {}).get("phase")
    if phase in {"Succeeded", "Failed"}:
        return str(phase)
    return "Active"


def _ready(pod: Object) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod.get("status", {}).get("conditions") or ()
    )


def _ended(pod: Object) -> float:
    for each in pod["status"].get("containerStatuses") or ():
        terminated = (each.get("state") or {}).get("terminated") or {}
        if terminated.get("finishedAt"):
            return datetime.fromisoformat(terminated["finishedAt"]).timestamp()
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
