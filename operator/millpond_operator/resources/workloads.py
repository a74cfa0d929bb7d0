"""The StatefulSet of the workers, its revisions and volumes, and the cleanup Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .diff import amount, within
from .metadata import cleanup_name, labels, metadata, revision_name, selector
from .names import REVISION, Object
from .pods import cleanup_template, with_revision
from .streamapp import StreamApp

__all__ = (
    "claim_growth",
    "claim_of",
    "cleanup_job",
    "controller_revision",
    "fixed_differences",
    "must_be_recreated",
    "stateful_set",
    "template_of",
)

_STATE = "state"
_CLEANUP_SECONDS = 600
"""Deadline of the Job: an image that cannot be pulled, or a missing node, would never end it."""
_FIXED = ("podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates")
"""Fields of a StatefulSet that cannot be changed."""


def stateful_set(
    app: StreamApp, template: Object, revision: str, replicas: int, *, keep_volumes: bool = False
) -> Object:
    """Return the StatefulSet with this number of workers of a revision.

    It restarts no pods by itself (OnDelete), and starts and stops workers in parallel (Parallel): the operator decides
    when a pod is deleted.

    Args:
        app: the application.
        template: from `pod_template`, possibly of an earlier revision.
        revision: its `revision_of`.
        replicas: number of workers.
        keep_volumes: whether the volumes of missing workers are kept in any case, because these workers return.
    """
    state = app.spec.state
    spec: Object = {
        "replicas": replicas,
        "serviceName": app.name,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector(app)},
        "template": with_revision(template, revision),
    }
    if not state.ephemeral:
        claim: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": state.size}}}
        if state.storage_class_name is not None:
            claim["storageClassName"] = state.storage_class_name
        spec["volumeClaimTemplates"] = [
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": _STATE, "labels": labels(app)},
                "spec": claim,
            }
        ]
        spec["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": state.retention_policy.when_deleted,
            "whenScaled": "Retain" if keep_volumes else state.retention_policy.when_scaled,
        }
    made = metadata(app)
    made["labels"] = made["labels"] | {REVISION: revision}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": made, "spec": spec}


def must_be_recreated(desired: Object, observed: Mapping[str, Any]) -> bool:
    """Return whether a StatefulSet differs in a field that cannot be changed, such as the size of its volumes.

    If so it is deleted without its pods (propagation ``Orphan``) and applied: the new one adopts them.
    """
    return bool(fixed_differences(desired, observed))


def fixed_differences(desired: Object, observed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a StatefulSet that differ and cannot be changed."""
    wanted, there = desired["spec"], observed["spec"]
    return tuple(
        field
        for field in _FIXED
        if (field in wanted) != (field in there) or not within(wanted.get(field), there.get(field), field)
    )


def claim_growth(app: StreamApp, claim: Mapping[str, Any]) -> Object | None:
    """Return the merge patch that grows a worker's volume to the StreamApp's size; None when it has that size.

    Args:
        app: the application.
        claim: one of its PersistentVolumeClaims.
    """
    size = app.spec.state.size
    if app.spec.state.ephemeral or amount(claim["spec"]["resources"]["requests"]["storage"]) >= amount(size):
        return None
    return {"spec": {"resources": {"requests": {"storage": size}}}}


def claim_of(app: StreamApp, claim: Mapping[str, Any]) -> bool:
    """Return whether a PersistentVolumeClaim holds a worker's state, by its name as StatefulSets give it."""
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    return bool(stem == f"{_STATE}-{app.name}" and ordinal.isdecimal())


def controller_revision(app: StreamApp, template: Object, revision: str, number: int = 1) -> Object:
    """Return the ControllerRevision with a pod template, kept for a rollback.

    Args:
        app: the application.
        template: from `pod_template`.
        revision: its `revision_of`.
        number: grows with each revision.
    """
    made = metadata(app, revision_name(app, revision))
    made["labels"] = made["labels"] | {REVISION: revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": made,
        "revision": number,
        "data": template,
    }


def template_of(revision: Mapping[str, Any]) -> Object:
    """Return the pod template in a ControllerRevision."""
    data: Object = revision["data"]
    return data


def cleanup_job(app: StreamApp, template: Object | None = None) -> Object:
    """Return the Job that deletes the application's internal topics and consumer group after its workers ended.

    It has no owner reference: a foreground deletion of the application would delete its objects, this Job included,
    before the application. A label has the uid of its StreamApp.

    Args:
        app: the application.
        template: the pod template of workers that are known to work; None for what the StreamApp specifies.
    """
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(app, cleanup_name(app), "cleanup", owned=False),
        "spec": {
            "backoffLimit": 4,
            "activeDeadlineSeconds": _CLEANUP_SECONDS,
            "ttlSecondsAfterFinished": 3600,
            "template": cleanup_template(app, template),
        },
    }
