"""The kinds that the API server serves, and its discovery documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ("BUILT_IN", "Kind", "Kinds")

Object = dict[str, Any]

_ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CORE = "io.k8s.api.core.v1"


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of objects in the served version of its group."""

    group: str
    version: str
    kind: str
    plural: str
    type: str = ""
    """Its struct in `types.json`; empty for those of custom resources."""
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = _ALL
    short: tuple[str, ...] = ()
    stored: bool = True
    """Reviews are answered and forgotten."""
    list_kind: str = ""
    singular: str = ""
    categories: tuple[str, ...] = ()
    schema: Any = field(default=None, compare=False)
    """The structural schema of custom resources."""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Its name in messages: `statefulsets.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _kind(group: str, kind: str, plural: str, package: str = "", **more: Any) -> Kind:
    return Kind(group, "v1", kind, plural, f"{package or _CORE}.{kind}", **more)


_RBAC, _NET = "rbac.authorization.k8s.io", "networking.k8s.io"
BUILT_IN: tuple[Kind, ...] = (
    _kind("", "Namespace", "namespaces", namespaced=False, subresources=("status", "finalize"), short=("ns",)),
    _kind("", "Node", "nodes", namespaced=False, subresources=("status",), short=("no",)),
    _kind("", "Pod", "pods", subresources=("status", "binding", "eviction"), short=("po",)),
    _kind("", "Service", "services", subresources=("status",), short=("svc",)),
    _kind("", "ServiceAccount", "serviceaccounts", subresources=("token",), short=("sa",)),
    _kind("", "ConfigMap", "configmaps", short=("cm",)),
    _kind("", "Secret", "secrets"),
    _kind("", "Event", "events", short=("ev",)),
    _kind("", "Endpoints", "endpoints", short=("ep",)),
    _kind("", "PersistentVolumeClaim", "persistentvolumeclaims", subresources=("status",), short=("pvc",)),
    _kind("", "ResourceQuota", "resourcequotas", subresources=("status",), short=("quota",)),
    _kind("", "LimitRange", "limitranges", short=("limits",)),
    _kind(
        "apps", "StatefulSet", "statefulsets", "io.k8s.api.apps.v1", subresources=("status", "scale"), short=("sts",)
    ),
    _kind(
        "apps", "Deployment", "deployments", "io.k8s.api.apps.v1", subresources=("status", "scale"), short=("deploy",)
    ),
    _kind("apps", "ReplicaSet", "replicasets", "io.k8s.api.apps.v1", subresources=("status", "scale"), short=("rs",)),
    _kind("apps", "ControllerRevision", "controllerrevisions", "io.k8s.api.apps.v1"),
    _kind("batch", "Job", "jobs", "io.k8s.api.batch.v1", subresources=("status",)),
    _kind("coordination.k8s.io", "Lease", "leases", "io.k8s.api.coordination.v1"),
    _kind("discovery.k8s.io", "EndpointSlice", "endpointslices", "io.k8s.api.discovery.v1"),
    _kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "io.k8s.api.policy.v1",
        subresources=("status",),
        short=("pdb",),
    ),
    _kind(_NET, "NetworkPolicy", "networkpolicies", "io.k8s.api.networking.v1", short=("netpol",)),
    _kind(_RBAC, "Role", "roles", "io.k8s.api.rbac.v1"),
    _kind(_RBAC, "RoleBinding", "rolebindings", "io.k8s.api.rbac.v1"),
    _kind(_RBAC, "ClusterRole", "clusterroles", "io.k8s.api.rbac.v1", namespaced=False),
    _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", "io.k8s.api.rbac.v1", namespaced=False),
    _kind("storage.k8s.io", "StorageClass", "storageclasses", "io.k8s.api.storage.v1", namespaced=False, short=("sc",)),
    _kind(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        "io.k8s.api.scheduling.v1",
        namespaced=False,
        short=("pc",),
    ),
    _kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        namespaced=False,
        subresources=("status",),
        short=("crd", "crds"),
    ),
    _kind(
        "authentication.k8s.io",
        "TokenReview",
        "tokenreviews",
        "io.k8s.api.authentication.v1",
        namespaced=False,
        verbs=("create",),
        stored=False,
    ),
    _kind(
        "authorization.k8s.io",
        "SubjectAccessReview",
        "subjectaccessreviews",
        "io.k8s.api.authorization.v1",
        namespaced=False,
        verbs=("create",),
        stored=False,
    ),
)


class Kinds:
    """The served kinds: built-in ones, and those of the custom resource definitions."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], dict[str, Kind]] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        self._listeners: list[Callable[[Kind], None]] = []
        for kind in BUILT_IN:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        """Start to serve a kind."""
        self._groups.setdefault((kind.group, kind.version), {})[kind.plural] = kind
        self._by_kind[kind.api_version, kind.kind] = kind

    def listen(self, removed: Callable[[Kind], None]) -> None:
        """Register a callback for removed kinds."""
        self._listeners.append(removed)

    def remove(self, kind: Kind) -> None:
        """Stop serving a kind."""
        self._groups.get((kind.group, kind.version), {}).pop(kind.plural, None)
        self._by_kind.pop((kind.api_version, kind.kind), None)
        if not self._groups.get((kind.group, kind.version), True):
            del self._groups[kind.group, kind.version]
        for removed in self._listeners:
            removed(kind)

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind at a path."""
        return self._groups.get((group, version), {}).get(plural)

    def named(self, api_version: str, kind: str) -> Kind | None:
        """The kind of an object, by its fields."""
        return self._by_kind.get((api_version, kind))

    def all(self) -> list[Kind]:
        """All served kinds."""
        return list(self._by_kind.values())

    # Discovery.

    def resources(self, group: str, version: str) -> Object | None:
        """The document at `/apis/GROUP/VERSION`."""
        kinds = self._groups.get((group, version))
        if kinds is None:
            return None
        found: list[Object] = []
        for kind in sorted(kinds.values(), key=lambda each: each.plural):
            one: Object = {
                "name": kind.plural,
                "singularName": kind.singular or kind.kind.lower(),
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": list(kind.verbs),
            }
            if kind.short:
                one["shortNames"] = list(kind.short)
            if kind.categories:
                one["categories"] = list(kind.categories)
            found.append(one)
            found.extend(_subresource(kind, each) for each in kind.subresources)
        gv = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": found}

    def groups(self) -> Object:
        """The document at `/apis`."""
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                made for group in dict.fromkeys(each for each, _ in self._groups) if (made := self._group(group))
            ],
        }

    def group(self, group: str) -> Object | None:
        """The document at `/apis/GROUP`."""
        made = self._group(group)
        return {"kind": "APIGroup", "apiVersion": "v1", **made} if made else None

    def _group(self, group: str) -> Object | None:
        versions = [
            {"groupVersion": f"{group}/{version}", "version": version}
            for each, version in self._groups
            if each == group
        ]
        if not group or not versions:
            return None
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _subresource(kind: Kind, name: str) -> Object:
    made: Object = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": kind.kind,
    }
    match name:
        case "scale":
            made |= {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        case "token":
            made |= {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
        case "eviction":
            made |= {"group": "policy", "version": "v1", "kind": "Eviction"}
        case "binding":
            made |= {"kind": "Binding"}
        case "finalize":
            return made | {"verbs": ["update"]}
    return made | {"verbs": ["create"] if name in {"token", "eviction", "binding"} else ["get", "patch", "update"]}
