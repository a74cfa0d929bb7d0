"""What runs workers: the StatefulSet, the revisions of its pods, and the Job that cleans up after them."""

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
    "must_be_made_anew",
    "stateful_set",
    "template_of",
)

_STATE = "state"
_CLEANUP_SECONDS = 600
"""An image that cannot be pulled, or a node that is not there, ends no Job by itself."""
_FIXED = ("podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates")
"""Fields of a StatefulSet that the API server lets nobody change."""


def stateful_set(
    app: StreamApp, template: Object, revision: str, replicas: int, *, keep_volumes: bool = False
) -> Object:
    """The StatefulSet that runs so many workers of a revision.

    It restarts nothing by itself (OnDelete), and starts and stops workers without waiting for one another (Parallel):
    the operator decides when a pod goes.

    Args:
        app: the application.
        template: as `pod_template` made it, perhaps of an earlier revision.
        revision: its `revision_of`.
        replicas: how many workers.
        keep_volumes: workers that are missing come back; their volumes wait for them whatever the StreamApp says.
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


def must_be_made_anew(desired: Object, observed: Mapping[str, Any]) -> bool:
    """Whether a StatefulSet differs where none can be changed, such as in the size of its volumes.

    Then it is deleted without its pods (propagation ``Orphan``) and applied: the new one adopts them.
    """
    return bool(fixed_differences(desired, observed))


def fixed_differences(desired: Object, observed: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a StatefulSet that differ and that the API server lets nobody change."""
    wanted, there = desired["spec"], observed["spec"]
    return tuple(
        field
        for field in _FIXED
        if (field in wanted) != (field in there) or not within(wanted.get(field), there.get(field), field)
    )


def claim_growth(app: StreamApp, claim: Mapping[str, Any]) -> Object | None:
    """The merge patch that makes a worker's volume as large as the StreamApp says; None when it is.

    Args:
        app: the application.
        claim: one of its PersistentVolumeClaims.
    """
    size = app.spec.state.size
    if app.spec.state.ephemeral or amount(claim["spec"]["resources"]["requests"]["storage"]) >= amount(size):
        return None
    return {"spec": {"resources": {"requests": {"storage": size}}}}


def claim_of(app: StreamApp, claim: Mapping[str, Any]) -> bool:
    """Whether a PersistentVolumeClaim is one that a worker's state is on, by its name as StatefulSets give it."""
    stem, _, ordinal = claim["metadata"]["name"].rpartition("-")
    return bool(stem == f"{_STATE}-{app.name}" and ordinal.isdecimal())


def controller_revision(app: StreamApp, template: Object, revision: str, number: int = 1) -> Object:
    """A pod template that was, is, or will be run; kept to go back to.

    Args:
        app: the application.
        template: as `pod_template` made it.
        revision: its `revision_of`.
        number: later revisions have greater ones.
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
    """The pod template in a ControllerRevision."""
    data: Object = revision["data"]
    return data


def cleanup_job(app: StreamApp, template: Object | None = None) -> Object:
    """The Job that deletes the application's internal topics and its consumer group, once no worker is left.

    It belongs to nobody: where an application is deleted in the foreground, what it owns is deleted before it. A label
    says of which StreamApp it is.

    Args:
        app: the application.
        template: the pod template of workers that are known to work, which need not be what the StreamApp wants; that
            when None.
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
