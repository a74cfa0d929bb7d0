"""What is specific to each kind: fields that a write may change, generations, and validation."""

from __future__ import annotations

import base64
from typing import Any

from millpond_operator.manifests.quantities import value_of
from tests.cluster.memory.failures import Cause, forbidden
from tests.cluster.memory.field_management.fields import Node
from tests.cluster.memory.kinds import Kind, Kinds
from tests.cluster.memory.store import Store
from tests.cluster.memory.validation.checking import checked, kept_as_they_were

__all__ = (
    "admit_create",
    "admit_update",
    "ignored",
    "prepare_create",
    "prepare_update",
    "scale",
    "set_scale",
    "unconditional",
    "validate",
    "with_string_data",
)

Object = dict[str, Any]
_GENERATIONS = frozenset(
    {
        "CustomResourceDefinition",
        "Deployment",
        "EndpointSlice",
        "Job",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "PriorityClass",
        "ReplicaSet",
        "StatefulSet",
    }
)
_CONDITIONAL = frozenset({"CustomResourceDefinition", "Lease", "PodDisruptionBudget"})
_NO_SPEC = frozenset({"EndpointSlice", "PriorityClass"})


def with_string_data(secret: Object) -> Object:
    """A Secret with its `stringData` merged into `data`."""
    encoded = {key: base64.b64encode(str(value).encode()).decode() for key, value in secret["stringData"].items()}
    made = {key: value for key, value in secret.items() if key != "stringData"}
    return {**made, "data": {**(secret.get("data") or {}), **encoded}}


def unconditional(kind: Kind) -> bool:
    """Whether an object may be replaced without a version."""
    return bool(kind.type) and kind.kind not in _CONDITIONAL


def ignored(kind: Kind, subresource: str) -> Node:
    """Fields that a write cannot change."""
    if subresource == "status":
        if kind.kind == "Pod":
            return {"f:spec": {}, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}}
        return {"f:spec": {}}
    if subresource == "":
        return {"f:status": {}} if "status" in kind.subresources else {}
    return {}


def prepare_create(kind: Kind, item: Object) -> None:
    """A new object without a status."""
    metadata = item["metadata"]
    if "status" in kind.subresources:
        _reset_status(kind, item)
    if kind.kind in _GENERATIONS or not kind.type:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)
    match kind.kind:
        case "Namespace":
            item["spec"] = {**item.get("spec", {}), "finalizers": ["kubernetes"]}
        case "PersistentVolumeClaim":
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), "kubernetes.io/pvc-protection"]
        case "Job":
            _label_job(item)
        case "Service":
            _address(item)


def _reset_status(kind: Kind, item: Object) -> None:
    if not kind.type:
        item.pop("status", None)
        return
    match kind.kind:
        case "Pod":
            item["status"] = {"phase": "Pending", "qosClass": _quality(item["spec"])}
        case "Namespace":
            item["status"] = {"phase": "Active"}
        case "PersistentVolumeClaim":
            item["status"] = {"phase": "Pending"}
        case "Service":
            item["status"] = {"loadBalancer": {}}
        case "Node":
            pass
        case "StatefulSet":
            item["status"] = {"replicas": 0, "availableReplicas": 0}
        case "PodDisruptionBudget":
            item["status"] = dict.fromkeys(
                ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
            )
        case "CustomResourceDefinition":
            item["status"] = {
                "conditions": None,
                "acceptedNames": {"plural": "", "kind": ""},
                "storedVersions": [each["name"] for each in item["spec"].get("versions", ()) if each.get("storage")],
            }
        case _:
            item["status"] = {}


def _quality(spec: Object) -> str:
    """The class of a pod's quality of service."""
    wants = [
        each.get("resources", {}) for each in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    ]
    some = any(each.get("requests") or each.get("limits") for each in wants)
    if not some:
        return "BestEffort"
    for each in wants:
        limits, requests = each.get("limits") or {}, each.get("requests") or {}
        if any(
            limits.get(name) is None or requests.get(name, limits[name]) != limits[name] for name in ("cpu", "memory")
        ):
            return "Burstable"
    return "Guaranteed"


def _label_job(item: Object) -> None:
    """A Job with labels that identify its pods."""
    spec = item["spec"]
    if spec.get("manualSelector"):
        return
    metadata = spec.setdefault("template", {}).setdefault("metadata", {})
    labels = metadata.setdefault("labels", {})
    for prefix in ("batch.kubernetes.io/", ""):
        labels.setdefault(f"{prefix}controller-uid", item["metadata"]["uid"])
        labels.setdefault(f"{prefix}job-name", item["metadata"]["name"])
    selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    selected.setdefault("batch.kubernetes.io/controller-uid", item["metadata"]["uid"])


def _address(item: Object) -> None:
    spec = item["spec"]
    if spec.get("type", "ClusterIP") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        _address.given += 1  # type: ignore[attr-defined]
        number = _address.given  # type: ignore[attr-defined]
        spec["clusterIP"] = f"10.0.{number // 250 % 250}.{number % 250 + 1}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


_address.given = 0  # type: ignore[attr-defined]


def prepare_update(kind: Kind, old: Object, item: Object, subresource: str) -> Object:
    """The object after a write: with its immutable parts and its generation."""
    made = dict(item)
    if subresource == "status":
        _keep(made, old, "spec")
        if not kind.type:
            managed = made["metadata"].get("managedFields")
            made = {**old, "metadata": {**old["metadata"]}}
            if "status" in item:
                made["status"] = item["status"]
            else:
                made.pop("status", None)
            if managed is not None:
                made["metadata"]["managedFields"] = managed
            return made
        if kind.kind == "Pod":
            _keep_metadata(made, old, "ownerReferences")
        return made
    if "status" in kind.subresources and subresource != "finalize":
        _keep(made, old, "status")
    if kind.kind == "Namespace" and subresource != "finalize":
        _keep(made, old, "spec")
    if kind.kind == "Service":
        made["spec"] = _kept_address(made["spec"], old["spec"])
    if kind.kind in _NO_SPEC:
        now, before = ({k: v for k, v in each.items() if k != "metadata"} for each in (made, old))
        labels = [each["metadata"].get("labels") for each in (made, old)]
        if now != before or (kind.kind == "EndpointSlice" and labels[0] != labels[1]):
            made["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    elif kind.kind in _GENERATIONS:
        if made.get("spec") != old.get("spec"):
            made["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    elif not kind.type:
        skipped = {"metadata", "status"} if "status" in kind.subresources else {"metadata"}
        now, before = ({k: v for k, v in each.items() if k not in skipped} for each in (made, old))
        if now != before:
            made["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    return made


def _keep(made: Object, old: Object, field: str) -> None:
    if field in old:
        made[field] = old[field]
    else:
        made.pop(field, None)


def _keep_metadata(made: Object, old: Object, field: str) -> None:
    metadata = dict(made["metadata"])
    _keep(metadata, old["metadata"], field)
    made["metadata"] = metadata


def _kept_address(spec: Object, before: Object) -> Object:
    made = dict(spec)
    for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if not made.get(field) and before.get(field):
            made[field] = before[field]
    return made


# Scale.


def scale(kind: Kind, item: Object) -> tuple[int, Object]:
    """Wanted replicas, and the status of the scale."""
    if kind.type:
        selector = item["spec"].get("selector") or {}
        labels = ",".join(f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items()))
        status: Object = {"replicas": item.get("status", {}).get("replicas", 0)}
        return item["spec"].get("replicas", 0), status | ({"selector": labels} if labels else {})
    paths = kind.schema.scale
    status = {"replicas": _at(item, paths["statusReplicasPath"]) or 0}
    if paths.get("labelSelectorPath") and (found := _at(item, paths["labelSelectorPath"])):
        status["selector"] = found
    return _at(item, paths["specReplicasPath"]) or 0, status


def set_scale(kind: Kind, item: Object, replicas: int) -> None:
    """Set the wanted replicas."""
    path = kind.schema.scale["specReplicasPath"] if not kind.type else ".spec.replicas"
    *parents, last = path.strip(".").split(".")
    for part in parents:
        item = item.setdefault(part, {})
    item[last] = replicas


def _at(item: Any, path: str) -> Any:
    for part in path.strip(".").split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


# Rules.


def validate(kind: Kind, item: Object, old: Object | None, subresource: str = "") -> list[Cause]:
    """The violations in an object."""
    found: list[Cause] = []
    if not kind.type:
        return kind.schema.validator.causes(item, old)  # type: ignore[no-any-return]
    found += checked(kind.kind, item)
    if old is not None:
        found += kept_as_they_were(kind.kind, item, old)
    return found


def admit_create(store: Store, kinds: Kinds, kind: Kind, item: Object) -> None:
    """Admission of a new object."""
    if kind.kind == "PersistentVolumeClaim" and "storageClassName" not in item["spec"]:
        classes = kinds.at("storage.k8s.io", "v1", "storageclasses")
        assert classes is not None
        for entry in store.entries(classes):
            annotations = entry.object["metadata"].get("annotations") or {}
            if annotations.get("storageclass.kubernetes.io/is-default-class") == "true":
                item["spec"]["storageClassName"] = entry.object["metadata"]["name"]
    if kind.kind == "Pod":
        spec = item["spec"]
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        accounts = kinds.at("", "v1", "serviceaccounts")
        assert accounts is not None
        name, namespace = spec["serviceAccountName"], item["metadata"]["namespace"]
        if store.get(accounts, namespace, name) is None:
            raise forbidden(
                kind,
                item["metadata"]["name"],
                f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found',
            )
        priority = spec.get("priorityClassName", "")
        if priority not in {"", "system-cluster-critical", "system-node-critical"}:  # there are no others here
            raise forbidden(kind, item["metadata"]["name"], f"no PriorityClass with name {priority} was found")
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        tolerations = spec.setdefault("tolerations", [])
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(each.get("key") in {key, None, ""} for each in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def admit_update(store: Store, kinds: Kinds, kind: Kind, item: Object, old: Object, subresource: str) -> None:
    """Admission of a change, by the state of other objects."""
    if kind.kind != "PersistentVolumeClaim" or subresource:
        return
    wanted, had = (each["spec"].get("resources", {}).get("requests", {}).get("storage", "0") for each in (item, old))
    if value_of(wanted) > value_of(had):
        classes = kinds.at("storage.k8s.io", "v1", "storageclasses")
        assert classes is not None
        found = store.get(classes, "", item["spec"].get("storageClassName", ""))
        if found is None or not found.object.get("allowVolumeExpansion"):
            raise forbidden(
                kind,
                item["metadata"]["name"],
                "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
                "support resize",
            )
