"""Defaults of built-in kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ("default",)

Object = dict[str, Any]
_DEFAULTS: dict[str, Callable[[Object], None]] = {}


def default(kind: str, item: Object) -> None:
    """Add defaults, in place."""
    found = _DEFAULTS.get(kind)
    if found is not None:
        found(item)


def _of(*kinds: str) -> Callable[[Callable[[Object], None]], Callable[[Object], None]]:
    def remember(function: Callable[[Object], None]) -> Callable[[Object], None]:
        for kind in kinds:
            _DEFAULTS[kind] = function
        return function

    return remember


def _set(into: Object, **values: Any) -> None:
    for key, value in values.items():
        into.setdefault(key, value)


# Pods.


def pod_spec(spec: Object) -> None:
    """Defaults of pods and pod templates."""
    _set(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", terminationGracePeriodSeconds=30)
    _set(spec, schedulerName="default-scheduler")
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for containers in ("initContainers", "containers", "ephemeralContainers"):
        for each in spec.get(containers) or ():
            _container(each)
    for each in spec.get("volumes") or ():
        _volume(each)
    if spec.get("hostNetwork"):
        for container in spec.get("containers") or ():
            for port in container.get("ports") or ():
                _set(port, hostPort=port["containerPort"])


def _container(container: Object) -> None:
    image = container.get("image", "")
    if not container.get("imagePullPolicy"):
        name, _, tag = image.rpartition("/")[2].partition(":")
        latest = "@" not in image and tag in {"", "latest"}
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    _set(container, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    for port in container.get("ports") or ():
        _set(port, protocol="TCP")
    for env in container.get("env") or ():
        source = env.get("valueFrom") or {}
        if "fieldRef" in source:
            _set(source["fieldRef"], apiVersion="v1")
        if "resourceFieldRef" in source:
            _set(source["resourceFieldRef"], divisor="0")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict):
            _http_get(handler)
    resources = container.get("resources") or {}
    for key, amount in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(key, amount)


def _probe(probe: Object) -> None:
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        if not probe.get(key):
            probe[key] = value
    _http_get(probe)
    if "grpc" in probe:
        _set(probe["grpc"], service="")


def _http_get(handler: Object) -> None:
    if "httpGet" in handler:
        get = handler["httpGet"]
        _set(get, path="/", scheme="HTTP")


def _volume(volume: Object) -> None:
    if not any(key != "name" for key in volume):
        volume["emptyDir"] = {}
    if "secret" in volume:
        _set(volume["secret"], defaultMode=420)
    if "configMap" in volume:
        _set(volume["configMap"], defaultMode=420)
    if "downwardAPI" in volume:
        _set(volume["downwardAPI"], defaultMode=420)
    if "hostPath" in volume:
        _set(volume["hostPath"], type="")
    if "ephemeral" in volume:
        _set(volume["ephemeral"].get("volumeClaimTemplate", {}).setdefault("spec", {}), volumeMode="Filesystem")
    if "projected" in volume:
        projected = volume["projected"]
        _set(projected, defaultMode=420)
        for source in projected.get("sources") or ():
            if "serviceAccountToken" in source:
                _set(source["serviceAccountToken"], expirationSeconds=3600)
            for item in (source.get("downwardAPI") or {}).get("items") or ():
                if "fieldRef" in item:
                    _set(item["fieldRef"], apiVersion="v1")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        if "fieldRef" in item:
            _set(item["fieldRef"], apiVersion="v1")


@_of("Pod")
def _pod(pod: Object) -> None:
    spec = pod.setdefault("spec", {})
    pod_spec(spec)
    _set(spec, enableServiceLinks=True)


# Workloads.


@_of("StatefulSet")
def _stateful_set(item: Object) -> None:
    spec = item.setdefault("spec", {})
    _set(spec, podManagementPolicy="OrderedReady", revisionHistoryLimit=10)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        _set(strategy["rollingUpdate"], partition=0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    _set(retention, whenDeleted="Retain", whenScaled="Retain")
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))
    for claim in spec.get("volumeClaimTemplates") or ():
        _set(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        _claim(claim)


@_of("Deployment")
def _deployment(item: Object) -> None:
    spec = item.setdefault("spec", {})
    _set(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = spec.setdefault("strategy", {})
    _set(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _set(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


@_of("ReplicaSet")
def _replica_set(item: Object) -> None:
    spec = item.setdefault("spec", {})
    _set(spec, replicas=1)
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


@_of("Job")
def _job(item: Object) -> None:
    spec = item.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    _set(spec, parallelism=1, backoffLimit=6, completionMode="NonIndexed", suspend=False)
    _set(spec, podReplacementPolicy="Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    _set(spec, manualSelector=False)
    if not item["metadata"].get("labels") and (
        labels := (spec.get("template", {}).get("metadata") or {}).get("labels")
    ):
        item["metadata"]["labels"] = dict(labels)
    pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


# What pods need.


@_of("PersistentVolumeClaim")
def _claim(item: Object) -> None:
    _set(item.setdefault("spec", {}), volumeMode="Filesystem")
    if not item.setdefault("status", {}).get("phase"):
        item["status"]["phase"] = "Pending"


@_of("Service")
def _service(item: Object) -> None:
    spec = item.setdefault("spec", {})
    _set(spec, sessionAffinity="None", type="ClusterIP")
    for port in spec.get("ports") or ():
        _set(port, protocol="TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if spec["type"] != "ExternalName":
        _set(spec, internalTrafficPolicy="Cluster")
    item.setdefault("status", {}).setdefault("loadBalancer", {})


@_of("Secret")
def _secret(item: Object) -> None:
    _set(item, type="Opaque")


@_of("Namespace")
def _namespace(item: Object) -> None:
    labels = item["metadata"].setdefault("labels", {})
    if item["metadata"].get("name"):
        labels["kubernetes.io/metadata.name"] = item["metadata"]["name"]
    if not item.setdefault("status", {}).get("phase"):
        item["status"]["phase"] = "Active"


@_of("NetworkPolicy")
def _network_policy(item: Object) -> None:
    spec = item.setdefault("spec", {})
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            _set(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


@_of("EndpointSlice")
def _endpoint_slice(item: Object) -> None:
    for port in item.get("ports") or ():
        _set(port, name="", protocol="TCP")


@_of("Endpoints")
def _endpoints(item: Object) -> None:
    for subset in item.get("subsets") or ():
        for port in subset.get("ports") or ():
            _set(port, protocol="TCP")


@_of("StorageClass")
def _storage_class(item: Object) -> None:
    _set(item, reclaimPolicy="Delete", volumeBindingMode="Immediate")


@_of("PriorityClass")
def _priority_class(item: Object) -> None:
    _set(item, preemptionPolicy="PreemptLowerPriority")


@_of("RoleBinding", "ClusterRoleBinding")
def _binding(item: Object) -> None:
    reference = item.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = "rbac.authorization.k8s.io"
    for subject in item.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in {"User", "Group"}:
            subject["apiGroup"] = "rbac.authorization.k8s.io"


@_of("CustomResourceDefinition")
def _definition(item: Object) -> None:
    spec = item.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind"):
        names["listKind"] = f"{kind}List"
    _set(spec, conversion={"strategy": "None"})
