"""Validation of built-in kinds: the rules that manifests of operators and users may break."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from millpond_operator.manifests.quantities import value_of
from tests.cluster.memory.failures import Cause
from tests.cluster.memory.selectors import by_selector

__all__ = ("checked", "kept_as_they_were")

Object = dict[str, Any]
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_PATH = re.compile(r"[^/%]+")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_MOST_PORT = 65535
_ROLES = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})


_IMMUTABLE_CLAIM = (
    "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
    "claims"
)


def checked(kind: str, item: Object) -> list[Cause]:
    """The violations in an object."""
    found: list[Cause] = []
    _metadata(kind, item["metadata"], found)
    check = _CHECKS.get(kind)
    if check is not None:
        check(item, found)
    return found


def _invalid(found: list[Cause], path: str, value: Any, told: str) -> None:
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    found.append(("FieldValueInvalid", path, f"Invalid value: {shown}: {told}"))


def _required(found: list[Cause], path: str, told: str = "") -> None:
    found.append(("FieldValueRequired", path, f"Required value{': ' if told else ''}{told}"))


def _metadata(kind: str, metadata: Object, found: list[Cause]) -> None:
    name = metadata.get("name", "")
    if not name:
        _required(found, "metadata.name", "name or generateName is required")
    else:
        form, most = _SUBDOMAIN, 253
        if kind in {"Namespace", "StatefulSet"}:
            form, most = _LABEL, 63
        elif kind == "Service":
            form, most = _SERVICE, 63
        elif kind in _ROLES:
            form = _PATH
        if len(name) > most:
            _invalid(found, "metadata.name", name, f"must be no more than {most} characters")
        if form.fullmatch(name) is None:
            _invalid(found, "metadata.name", name, f"must match {form.pattern}")
    _labels(metadata.get("labels") or {}, "metadata.labels", found)
    for each in metadata.get("annotations") or {}:
        if _QUALIFIED.fullmatch(each) is None:
            _invalid(found, "metadata.annotations", each, "name part must consist of alphanumeric characters")
    for number, each in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not each.get(field):
                _invalid(found, f"metadata.ownerReferences[{number}].{field}", "", f"{field} must not be empty")
    if sum(bool(each.get("controller")) for each in metadata.get("ownerReferences") or ()) > 1:
        _invalid(found, "metadata.ownerReferences", "", "Only one reference can have Controller set to true")


def _labels(labels: Object, path: str, found: list[Cause]) -> None:
    for key, value in labels.items():
        if _QUALIFIED.fullmatch(key) is None:
            _invalid(found, path, key, "name part must consist of alphanumeric characters, '-', '_' or '.'")
        if len(value) > 63 or _VALUE.fullmatch(value) is None:
            _invalid(found, path, value, "a valid label must be an empty string or consist of alphanumeric characters")


def _service(item: Object, found: list[Cause]) -> None:
    spec = item["spec"]
    ports = spec.get("ports") or []
    if not ports and spec.get("clusterIP") != "None" and spec.get("type") != "ExternalName":
        _required(found, "spec.ports")
    for number, port in enumerate(ports):
        _port(port.get("port", 0), f"spec.ports[{number}].port", found)
        target = port.get("targetPort", 0)
        if isinstance(target, int):
            _port(target, f"spec.ports[{number}].targetPort", found)
        if len(ports) > 1 and not port.get("name"):
            _required(found, f"spec.ports[{number}].name")


def _port(value: int, path: str, found: list[Cause]) -> None:
    if not 0 < value <= _MOST_PORT:
        _invalid(found, path, value, "must be between 1 and 65535, inclusive")


def _template(template: Object, path: str, found: list[Cause]) -> None:
    _labels((template.get("metadata") or {}).get("labels") or {}, f"{path}.metadata.labels", found)
    _pod_spec(template["spec"], f"{path}.spec", found)


def _pod_spec(spec: Object, path: str, found: list[Cause]) -> None:
    containers = spec.get("containers") or []
    if not containers:
        _required(found, f"{path}.containers")
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    names: set[str] = set()
    for number, each in enumerate(containers):
        at = f"{path}.containers[{number}]"
        name = each.get("name", "")
        if not name:
            _required(found, f"{at}.name")
        elif _LABEL.fullmatch(name) is None:
            _invalid(found, f"{at}.name", name, "a lowercase RFC 1123 label must consist of lower case characters")
        if name in names:
            found.append(("FieldValueDuplicate", f"{at}.name", f'Duplicate value: "{name}"'))
        names.add(name)
        if not each.get("image"):
            _required(found, f"{at}.image")
        for index, mount in enumerate(each.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                told = f'Not found: "{mount.get("name")}"'
                found.append(("FieldValueNotFound", f"{at}.volumeMounts[{index}].name", told))


def _pod(item: Object, found: list[Cause]) -> None:
    _pod_spec(item["spec"], "spec", found)


def _stateful_set(item: Object, found: list[Cause]) -> None:
    spec = item["spec"]
    if spec["replicas"] < 0:
        _invalid(found, "spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete" and "rollingUpdate" in strategy:
        told = "only allowed for updateStrategy 'RollingUpdate'"
        _invalid(found, "spec.updateStrategy.rollingUpdate", strategy["rollingUpdate"], told)
    selector = spec.get("selector")
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if selector is None:
        _required(found, "spec.selector")
    elif not selector.get("matchLabels") and not selector.get("matchExpressions"):
        _invalid(found, "spec.selector", "{}", "empty selector is invalid for statefulset")
    elif not by_selector(selector)(labels):
        _invalid(found, "spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
    template = spec["template"]
    claims = [{"name": each["metadata"].get("name")} for each in spec.get("volumeClaimTemplates") or ()]
    volumes = [*(template["spec"].get("volumes") or ()), *claims]
    _template({**template, "spec": {**template["spec"], "volumes": volumes}}, "spec.template", found)


def _job(item: Object, found: list[Cause]) -> None:
    spec = item["spec"]
    _template(spec["template"], "spec.template", found)
    if spec["template"]["spec"].get("restartPolicy") not in {"OnFailure", "Never"}:
        told = 'Required value: valid values: "OnFailure", "Never"'
        found.append(("FieldValueRequired", "spec.template.spec.restartPolicy", told))


def _claim(item: Object, found: list[Cause]) -> None:
    spec = item["spec"]
    if not spec.get("accessModes"):
        _required(found, "spec.accessModes", "at least 1 access mode is required")
    if "storage" not in (spec.get("resources") or {}).get("requests", {}):
        _required(found, "spec.resources[storage]")


_CHECKS: dict[str, Callable[[Object, list[Cause]], None]] = {
    "Service": _service,
    "Pod": _pod,
    "StatefulSet": _stateful_set,
    "Job": _job,
    "PersistentVolumeClaim": _claim,
}


_SET_CHANGES = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_FIXED: dict[str, tuple[tuple[str, ...], ...]] = {
    "Job": tuple(
        ("spec", field)
        for field in ("selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")
    ),
    "ControllerRevision": (("data",),),
    "Secret": (("type",),),
    "EndpointSlice": (("addressType",),),
    "RoleBinding": (("roleRef",),),
    "ClusterRoleBinding": (("roleRef",),),
    "StorageClass": (("provisioner",), ("parameters",), ("reclaimPolicy",), ("volumeBindingMode",)),
    "PriorityClass": (("value",),),
}


def kept_as_they_were(kind: str, item: Object, old: Object) -> list[Cause]:
    """The violations in a change: immutable fields."""
    found: list[Cause] = []
    for path in _FIXED.get(kind, ()):
        if _at(item, path) != _at(old, path):
            _invalid(found, ".".join(path), "null", "field is immutable")
    match kind:
        case "StatefulSet":
            now, before = ({k: v for k, v in each["spec"].items() if k not in _SET_CHANGES} for each in (item, old))
            if now != before:
                fields = ", ".join(f"'{field}'" for field in _SET_CHANGES[:-1])
                told = (
                    f"Forbidden: updates to statefulset spec for fields other than {fields} and '{_SET_CHANGES[-1]}' "
                    "are forbidden"
                )
                found.append(("FieldValueForbidden", "spec", told))
        case "Service":
            address, before = (each["spec"].get("clusterIP") for each in (item, old))
            if before and address != before and item["spec"].get("type") != "ExternalName":
                _invalid(found, "spec.clusterIPs[0]", address, "may not change once set")
        case "PersistentVolumeClaim":
            _claim_kept(item, old, found)
        case "Pod":
            _pod_kept(item, old, found)
        case "ConfigMap" | "Secret":
            if old.get("immutable") and any(item.get(field) != old.get(field) for field in ("data", "binaryData")):
                found.append(("FieldValueForbidden", "data", "Forbidden: field is immutable when `immutable` is set"))
    return found


def _at(item: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        item = (item or {}).get(part)
    return item


def _claim_kept(item: Object, old: Object, found: list[Cause]) -> None:
    now, before = ({k: v for k, v in each["spec"].items() if k != "resources"} for each in (item, old))
    if not before.get("volumeName"):
        now.pop("volumeName", None)
        before.pop("volumeName", None)
    if now != before:
        told = _IMMUTABLE_CLAIM
        found.append(("FieldValueForbidden", "spec", told))
        return
    wanted, had = (each["spec"]["resources"]["requests"]["storage"] for each in (item, old))
    if wanted == had:
        return
    if (old.get("status") or {}).get("phase") != "Bound":
        told = _IMMUTABLE_CLAIM
        found.append(("FieldValueForbidden", "spec", told))
    elif value_of(wanted) < value_of(had):
        told = "Forbidden: field can not be less than status.capacity"
        found.append(("FieldValueForbidden", "spec.resources.requests.storage", told))


def _pod_kept(item: Object, old: Object, found: list[Cause]) -> None:
    def fixed(pod: Object) -> Object:
        spec = {key: value for key, value in pod["spec"].items() if key not in {"activeDeadlineSeconds", "tolerations"}}
        for field in ("containers", "initContainers"):
            if field in spec:
                spec[field] = [{k: v for k, v in each.items() if k != "image"} for each in spec[field]]
        return spec

    if fixed(item) != fixed(old):
        told = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
            "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
            "existing "
            "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
        )
        found.append(("FieldValueForbidden", "spec", told))
