"""The objects that commands of the documentation name, as small as an API server takes them."""

from __future__ import annotations

from typing import Any

__all__ = ("completed", "objects")

Object = dict[str, Any]

_STREAM_APP = {"image": "example:1", "topology": "app:main", "kafka": {"bootstrapServers": "kafka:9092"}}
_STATE_BOOTSTRAP = {"streamApp": "delays", "location": "s3://states/delays", "spark": {"image": "example:1"}}
_ASSIGNMENT = {"application": "delays", "term": 1, "number": 1}
_CONTAINER = {
    "name": "worker",
    "image": "example:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
_POD = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [_CONTAINER],
}
"""A page labels its namespace so that only restricted pods are admitted."""
_READY = [
    {
        "type": "Ready",
        "status": "True",
        "reason": "AsExpected",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
]


def objects() -> list[Object]:
    """Return the objects without their namespace."""
    labels = {"app": "example"}
    template = {"metadata": {"labels": labels}, "spec": _POD}
    workload = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return [
        _object("millpond.dev/v1alpha1", "StreamApp", "delays", spec=_STREAM_APP, status=_status()),
        *(
            _object("millpond.dev/v1alpha1", "StateBootstrap", name, spec=_STATE_BOOTSTRAP, status=_ready())
            for name in ("before-the-move", "delays-29499120")
        ),
        _object("millpond.dev/v1alpha1", "StreamAssignment", "delays", spec=_ASSIGNMENT),
        _object("apps/v1", "StatefulSet", "delays", spec={"serviceName": "delays", **workload}),
        _object("apps/v1", "Deployment", "millpond-operator", spec=workload),
        _object("v1", "Pod", "delays-2", spec=_POD),
        _object("v1", "PersistentVolumeClaim", "state-delays-2", spec=claim),
        _object("v1", "Secret", "millpond-coordinator-tls", data={"tls.crt": "eA=="}),
        _object("coordination.k8s.io/v1", "Lease", "millpond-operator", spec={"holderIdentity": "millpond-operator-0"}),
        _object("rbac.authorization.k8s.io/v1", "Role", "millpond-console"),
    ]


def completed(fragment: Object) -> Object:
    """Return a whole StreamApp or StateBootstrap of a fragment that has a part of `spec` only."""
    if "kind" in fragment:
        return fragment
    return _object("millpond.dev/v1alpha1", "StreamApp", "delays", spec={**_STREAM_APP, **fragment["spec"]})


def _ready() -> Object:
    return {"conditions": _READY}


def _status() -> Object:
    failed = {"revision": "7c20", "strategy": "Rolling", "reason": "NoProgress", "message": ""}
    return {**_ready(), "autoscaling": {"currentReplicas": 2, "mode": "Auto"}, "failed": failed}


def _object(api_version: str, kind: str, name: str, **rest: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **rest}
