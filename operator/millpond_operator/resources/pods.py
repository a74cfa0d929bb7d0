"""The pods of workers, of the cleanup and of snapshots, and the revision of a pod template."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from .diff import digest
from .environment import (
    BOOTSTRAP_DIRECTORY,
    COORDINATOR_DIRECTORY,
    CREDENTIALS_DIRECTORY,
    HTTP_PORT,
    QUERY_PORT,
    STATE_DIRECTORY,
    cleanup_environment,
    worker_environment,
)
from .metadata import coordinator_config_name, labels, selector
from .names import APP_UID, RESTARTED_AT, REVISION, Object, Surroundings
from .spec import Requirements
from .streamapp import StreamApp

__all__ = (
    "TOKEN_AUDIENCE",
    "cleanup_template",
    "pod_template",
    "revision_of",
    "snapshot_template",
    "specification_digest",
    "with_revision",
)

TOKEN_AUDIENCE = "millpond-coordinator"  # noqa: S105 - whom a token is for is no secret
"""The only audience of workers' tokens."""
_TOKEN_SECONDS = 3600
_READ_ONLY = 0o440
_USER = 65532
"""A user id that exists on no machine."""
_WORKER = "worker"
_NO_SURROUNDINGS = Surroundings(coordinator_url_base="", ca_pem="", leader_epoch=0, operator_namespace="")

_SHARED_BY_CONTAINERS = (
    "image",
    "imagePullPolicy",
    "resources",
    "securityContext",
    "terminationMessagePolicy",
)
_SHARED_BY_PODS = (
    "automountServiceAccountToken",
    "enableServiceLinks",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "securityContext",
    "tolerations",
)
"""Fields that the cleanup pod copies from the workers."""
_NOT_IN_PODS = frozenset(
    {
        "acceptable_recovery_lag",
        "bootstrap",
        "deletion",
        "autoscaling",
        "max_warmup_replicas",
        "replicas",
        "rollout",
        "standby_replicas",
        "suspended",
    }
)


def pod_template(app: StreamApp, surroundings: Surroundings) -> Object:
    """Return the pod template of a worker, without the label of its revision."""
    pod = app.spec.pod
    annotations = dict(pod.annotations)
    if app.restarted_at is not None:
        annotations[RESTARTED_AT] = app.restarted_at
    metadata: Object = {"labels": pod.labels | labels(app)}
    if annotations:
        metadata["annotations"] = annotations
    resources = app.spec.resources if _amounts(app.spec.resources) else surroundings.default_resources
    container = _container(app, worker_environment(app, surroundings), resources) | {
        "command": ["millpond", "run", app.spec.topology],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": "query", "containerPort": QUERY_PORT, "protocol": "TCP"},
        ],
        # Importing an application and opening its state takes time; after that the loop has to answer.
        "startupProbe": _probe("/healthz", period=1, timeout=5, failures=300),
        "livenessProbe": _probe("/healthz", period=10, timeout=5, failures=6),
        "readinessProbe": _probe("/readyz", period=2, timeout=2, failures=2),
    }
    spec = _pod(app, container) | {
        "serviceAccountName": app.name,
        "terminationGracePeriodSeconds": pod.termination_grace_period_seconds,
        "topologySpreadConstraints": _spread(app),
    }
    spec["volumes"] += [_token_volume(app), *_mounted_volumes(app)]
    container["volumeMounts"] += [
        {"name": "coordinator", "mountPath": COORDINATOR_DIRECTORY, "readOnly": True},
        *_mounts(app),
    ]
    if app.spec.bootstrap is not None and app.spec.bootstrap.credentials_secret is not None:
        # Optional, since workers can restore without snapshots: they replay.
        spec["volumes"].append(bootstrap_volume(app.spec.bootstrap.credentials_secret, optional=True))
        container["volumeMounts"].append(BOOTSTRAP_MOUNT)
    if app.spec.state.ephemeral:
        spec["volumes"].append({"name": "state", "emptyDir": {"sizeLimit": app.spec.state.size}})
    return {"metadata": metadata, "spec": spec}


def revision_of(template: Object) -> str:
    """Return the revision of a pod template: ten hexadecimal digits, the same in every process."""
    return digest(template)[:10]


def specification_digest(app: StreamApp) -> str:
    """Return a digest of the parts of the specification that are visible in pods.

    Fields with their default value do not count, so that a version of the operator that knows more fields returns the
    same.
    """
    given = {name: value for name, value in _non_default(app.spec).items() if name not in _NOT_IN_PODS}
    if app.spec.bootstrap is not None:  # the schedule of snapshots does not concern workers
        given["bootstrap"] = [app.spec.bootstrap.location, app.spec.bootstrap.credentials_secret]
    return digest([given, app.restarted_at])


def _non_default(value: Any) -> Any:
    """Return the parts of a specification that differ from their defaults, as JSON."""
    if isinstance(value, msgspec.Struct):
        return {
            each.name: _non_default(own)
            for each in _fields(type(value))
            if (own := getattr(value, each.name)) != _default(each)
        }
    if isinstance(value, Mapping):
        return {key: _non_default(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_non_default(each) for each in value]
    return str(value) if isinstance(value, timedelta) else value


@functools.cache  # msgspec compiles the annotations each time
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def with_revision(template: Object, revision: str) -> Object:
    """Return the template with the label of its revision."""
    metadata = template["metadata"]
    return template | {"metadata": metadata | {"labels": metadata["labels"] | {REVISION: revision}}}


def cleanup_template(app: StreamApp, worker: Object | None = None) -> Object:
    """Return the pod template that deletes the application's data in Kafka.

    It needs no object of the operator, which may be deleted already together with the application.

    Args:
        app: the application.
        worker: the pod template whose image, topology and settings the Job uses; None for the StreamApp's own.
    """
    worker = pod_template(app, _NO_SURROUNDINGS) if worker is None else worker
    (first,) = (each for each in worker["spec"]["containers"] if each["name"] == _WORKER)
    container = {key: first[key] for key in _SHARED_BY_CONTAINERS if key in first} | {
        "name": "cleanup",
        "command": ["millpond", "reset", first["command"][2], "--delete", "--yes"],
        "env": cleanup_environment(first["env"]),
        "volumeMounts": [each for each in first["volumeMounts"] if each["name"] != "coordinator"],
    }
    volumes = [each for each in worker["spec"]["volumes"] if each["name"] not in {"coordinator", "state"}]
    spec = {key: worker["spec"][key] for key in _SHARED_BY_PODS if key in worker["spec"]} | {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [*volumes, {"name": "state", "emptyDir": {}}],
    }
    given = {key: value for key, value in worker["metadata"]["labels"].items() if key != REVISION}
    return {"metadata": {"labels": given | labels(app, "cleanup") | {APP_UID: app.uid}}, "spec": spec}


def snapshot_template(app: StreamApp, image: str, resources: Requirements, secret: str | None) -> Object:
    """Return the pod template of a snapshot: its container is called `snapshot`, and has no command yet.

    Args:
        app: the application.
        image: with Spark.
        resources: of the container.
        secret: with the credentials of the location, mounted at `BOOTSTRAP_DIRECTORY`.
    """
    variables = cleanup_environment(worker_environment(app, _NO_SURROUNDINGS))
    container = _container(app, variables, resources) | {"name": "snapshot", "image": image}
    container["volumeMounts"] += _mounts(app)
    spec = _pod(app, container) | {"restartPolicy": "Never"}
    spec["volumes"] += [*_mounted_volumes(app), {"name": "state", "emptyDir": {}}]
    if secret is not None:
        spec["volumes"].append(bootstrap_volume(secret, optional=False))
        container["volumeMounts"].append(BOOTSTRAP_MOUNT)
    return {"metadata": {"labels": labels(app, "snapshot")}, "spec": spec}


def bootstrap_volume(secret: str, *, optional: bool) -> Object:
    """Return the volume with the credentials of the snapshots' location."""
    source: Object = {"secretName": secret, "defaultMode": _READ_ONLY}
    return {"name": "bootstrap", "secret": source | ({"optional": True} if optional else {})}


BOOTSTRAP_MOUNT: Object = {"name": "bootstrap", "mountPath": BOOTSTRAP_DIRECTORY, "readOnly": True}


def _mounts(app: StreamApp) -> list[Object]:
    return [{"name": f"mount-{each.name}", "mountPath": each.path, "readOnly": True} for each in app.spec.pod.mounts]


def _pod(app: StreamApp, container: Object) -> Object:
    """Return what all pods of the application share, as restricted as possible."""
    spec, pod = app.spec, app.spec.pod
    made: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    if spec.kafka.credentials_secret is not None:
        source = {"secretName": spec.kafka.credentials_secret, "defaultMode": _READ_ONLY}
        made["volumes"].append({"name": "credentials", "secret": source})
    if spec.image_pull_secrets:
        made["imagePullSecrets"] = [{"name": each.name} for each in spec.image_pull_secrets]
    if pod.node_selector:
        made["nodeSelector"] = dict(pod.node_selector)
    if pod.tolerations:
        made["tolerations"] = [msgspec.to_builtins(each) for each in pod.tolerations]
    if pod.priority_class_name is not None:
        made["priorityClassName"] = pod.priority_class_name
    return made


def _container(app: StreamApp, environment: list[Object], resources: Requirements) -> Object:
    spec = app.spec
    made: Object = {
        "name": _WORKER,
        "image": spec.image,
        "env": environment,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - the pod's own
            {"name": "state", "mountPath": STATE_DIRECTORY},
        ],
    }
    if spec.kafka.credentials_secret is not None:
        made["volumeMounts"].append({"name": "credentials", "mountPath": CREDENTIALS_DIRECTORY, "readOnly": True})
    if spec.image_pull_policy is not None:
        made["imagePullPolicy"] = spec.image_pull_policy
    if given := _amounts(resources):
        made["resources"] = given
    return made


def _amounts(resources: Requirements) -> Object:
    amounts: dict[str, Any] = {"requests": resources.requests, "limits": resources.limits}
    return {kind: dict(amount) for kind, amount in amounts.items() if amount}


def _probe(path: str, *, period: int, timeout: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _token_volume(app: StreamApp) -> Object:
    """Return the volume with the worker's token for the coordinator and the coordinator's certificate authority."""
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": _TOKEN_SECONDS, "path": "token"}
    authority = {"name": coordinator_config_name(app), "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    sources = [{"serviceAccountToken": token}, {"configMap": authority}]
    return {"name": "coordinator", "projected": {"sources": sources, "defaultMode": _READ_ONLY}}


def _mounted_volumes(app: StreamApp) -> list[Object]:
    return [
        {"name": f"mount-{each.name}", "secret": {"secretName": each.secret, "defaultMode": _READ_ONLY}}
        if each.secret is not None
        else {"name": f"mount-{each.name}", "configMap": {"name": each.config_map}}
        for each in app.spec.pod.mounts
    ]


def _spread(app: StreamApp) -> list[Object]:
    """Return the topology spread: by default over as many nodes as possible."""
    chosen = [
        (each.topology_key, each.max_skew, each.when_unsatisfiable) for each in app.spec.pod.topology_spread_constraints
    ] or [("kubernetes.io/hostname", 1, "ScheduleAnyway")]
    return [
        {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": otherwise,
            "labelSelector": {"matchLabels": selector(app)},
        }
        for key, skew, otherwise in chosen
    ]
