"""The objects of one snapshot: a Job whose pod runs Spark, its service account, and settings of its executors."""

from __future__ import annotations

import json
from decimal import Decimal

from .diff import amount
from .environment import BOOTSTRAP_DIRECTORY
from .metadata import labels
from .names import API_VERSION, BOOTSTRAP, Object
from .pods import snapshot_template
from .spec import Requirements
from .statebootstrap import StateBootstrap
from .streamapp import StreamApp

__all__ = ("snapshot_access", "snapshot_job", "snapshot_job_name", "snapshot_settings")

_API = "https://kubernetes.default.svc"
_RBAC = "rbac.authorization.k8s.io"
_SPARK_DIRECTORY = "/etc/millpond/spark"
_HEAP = Decimal("0.55")
_DEFAULT_MEMORY = "2Gi"
_TEMPLATE = "executor.json"


def snapshot_job_name(bootstrap: StateBootstrap) -> str:
    """Return the name of the Job, which all its objects share."""
    return f"{bootstrap.name}-snapshot"


def snapshot_access(app: StreamApp, bootstrap: StateBootstrap, executors_role: str) -> list[Object]:
    """Return the service account of the Job's pod, and its roles: report progress, manage executors if it has any.

    Args:
        app: the application.
        bootstrap: the snapshot.
        executors_role: the ClusterRole with which a driver manages its executors' pods (it is in `deploy/access.yaml`);
            `Role/NAME` for a Role in the namespace.
    """
    name = snapshot_job_name(bootstrap)
    account: Object = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(app, bootstrap),
        "automountServiceAccountToken": False,
    }
    role: Object = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": _metadata(app, bootstrap),
        "rules": [
            {
                "apiGroups": ["millpond.dev"],
                "resources": ["statebootstraps/status"],
                "resourceNames": [bootstrap.name],
                "verbs": ["patch"],
            }
        ],
    }
    made = [account, role, _binding(app, bootstrap, name, "Role", name)]
    if bootstrap.spec.spark.mode == "Executors":
        kind, _, role_name = executors_role.rpartition("/")
        made.append(_binding(app, bootstrap, f"{name}-executors", kind or "ClusterRole", role_name))
    return made


def snapshot_settings(app: StreamApp, bootstrap: StateBootstrap) -> Object:
    """Return the ConfigMap with Spark's settings, and with the template of executors' pods in that mode."""
    spark = bootstrap.spec.spark
    memory, heap = _memory(spark.resources)
    settings = {"spark.driver.memory": f"{heap}m"}
    data = {}
    if spark.mode == "Executors":
        requests, limits = spark.resources.requests, spark.resources.limits
        cpu = requests.get("cpu", limits.get("cpu", 1))
        settings |= {
            "spark.kubernetes.namespace": app.namespace,
            "spark.kubernetes.container.image": spark.image,
            "spark.kubernetes.driver.pod.name": "${env:SPARK_DRIVER_POD_NAME}",
            "spark.kubernetes.executor.podTemplateFile": f"{_SPARK_DIRECTORY}/{_TEMPLATE}",
            "spark.kubernetes.executor.request.cores": str(cpu),
            "spark.executor.instances": str(spark.executors),
            "spark.executor.cores": str(max(1, int(amount(cpu)))),
            "spark.executor.memory": f"{heap}m",
            "spark.executor.memoryOverhead": f"{memory - heap}m",
            # Objects that a driver would create or look up by default; it has no permission for them.
            "spark.kubernetes.executor.disableConfigMap": "true",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
        }
        if "cpu" in limits:
            settings["spark.kubernetes.executor.limit.cores"] = str(limits["cpu"])
        if app.spec.image_pull_policy is not None:
            settings["spark.kubernetes.container.image.pullPolicy"] = app.spec.image_pull_policy
        data[_TEMPLATE] = json.dumps(_executor(app, bootstrap), sort_keys=True)
    data["spark-defaults.conf"] = "".join(f"{name} {value}\n" for name, value in sorted(settings.items()))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(app, bootstrap), "data": data}


def snapshot_job(app: StreamApp, bootstrap: StateBootstrap) -> Object:
    """Return the Job: its retries, deadline and suspension are those of the StateBootstrap."""
    spec, name = bootstrap.spec, snapshot_job_name(bootstrap)
    template = snapshot_template(app, spec.spark.image, spec.spark.resources, spec.credentials_secret)
    template["metadata"]["labels"] |= {BOOTSTRAP: bootstrap.name}
    pod = template["spec"]
    # The token has only the roles above.
    pod |= {"serviceAccountName": name, "automountServiceAccountToken": True}
    pod["volumes"].append({"name": "spark", "configMap": {"name": name}})
    (container,) = pod["containers"]
    container["command"] = _command(app, bootstrap)
    container["volumeMounts"].append({"name": "spark", "mountPath": _SPARK_DIRECTORY, "readOnly": True})
    container["env"] = [
        *container["env"],
        {"name": "SPARK_CONF_DIR", "value": _SPARK_DIRECTORY},
        {"name": "SPARK_DRIVER_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        # Executors connect to the driver at its pod's address.
        {"name": "SPARK_LOCAL_HOSTNAME", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(app, bootstrap),
        "spec": {
            "backoffLimit": spec.backoff_limit,
            "activeDeadlineSeconds": max(1, int(spec.deadline.total_seconds())),
            "suspend": spec.suspend,
            "template": template,
        },
    }


def _command(app: StreamApp, bootstrap: StateBootstrap) -> list[str]:
    spec = bootstrap.spec
    master = f"k8s://{_API}" if spec.spark.mode == "Executors" else "local[*]"
    path = f"/apis/{API_VERSION}/namespaces/{bootstrap.namespace}/statebootstraps/{bootstrap.name}/status"
    command = ["millpond", "snapshot", "create", app.spec.topology, "--location", spec.location.replace("$", "$$")]
    if spec.credentials_secret is not None:
        command += ["--credentials-dir", BOOTSTRAP_DIRECTORY]
    if spec.catalog is not None:
        command += ["--catalog", spec.catalog.replace("$", "$$")]
    if spec.keep is not None:
        command += ["--keep", str(spec.keep)]
    if spec.full:
        command.append("--full")
    return [*command, "--master", master, "--report-to", f"{_API}{path}"]


def _executor(app: StreamApp, bootstrap: StateBootstrap) -> Object:
    """Return the template of executors' pods: as restricted as the driver's, and without a token."""
    template = snapshot_template(app, bootstrap.spec.spark.image, Requirements(), bootstrap.spec.credentials_secret)
    pod = template["spec"]
    del pod["restartPolicy"]
    (container,) = pod["containers"]
    container["env"] = [each for each in container["env"] if not each["name"].startswith("MILLPOND_")]
    container["workingDir"] = "/tmp"  # noqa: S108 - the pod's own; an executor stores its jars in its working directory
    made = labels(app, "snapshot-executor") | {BOOTSTRAP: bootstrap.name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": made}, "spec": pod}


def _memory(resources: Requirements) -> tuple[int, int]:
    """Return a pod's memory and its heap, both in MiB."""
    whole = resources.limits.get("memory", resources.requests.get("memory", _DEFAULT_MEMORY))
    mebibytes = amount(whole) / 2**20
    return int(mebibytes), max(1, int(mebibytes * _HEAP))


def _binding(app: StreamApp, bootstrap: StateBootstrap, name: str, kind: str, role: str) -> Object:
    account = {"kind": "ServiceAccount", "name": snapshot_job_name(bootstrap), "namespace": bootstrap.namespace}
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": _metadata(app, bootstrap) | {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [account],
    }


def _metadata(app: StreamApp, bootstrap: StateBootstrap) -> Object:
    return {
        "name": snapshot_job_name(bootstrap),
        "namespace": bootstrap.namespace,
        "labels": labels(app, "snapshot") | {BOOTSTRAP: bootstrap.name},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "StateBootstrap",
                "name": bootstrap.name,
                "uid": bootstrap.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
