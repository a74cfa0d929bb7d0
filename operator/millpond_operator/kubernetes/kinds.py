"""The kinds of objects that the operator reads or writes, and their paths at the API server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote

__all__ = (
    "CONFIG_MAP",
    "CONTROLLER_REVISION",
    "CUSTOM_RESOURCE_DEFINITION",
    "ENDPOINTS",
    "ENDPOINT_SLICE",
    "EVENT",
    "JOB",
    "LEASE",
    "NAMESPACE",
    "NETWORK_POLICY",
    "NODE",
    "PERSISTENT_VOLUME_CLAIM",
    "POD",
    "POD_DISRUPTION_BUDGET",
    "ROLE",
    "ROLE_BINDING",
    "SECRET",
    "SERVICE",
    "SERVICE_ACCOUNT",
    "STATEFUL_SET",
    "STATE_BOOTSTRAP",
    "STREAM_APP",
    "STREAM_ASSIGNMENT",
    "TOKEN_REVIEW",
    "Kind",
)


@dataclass(frozen=True)
class Kind:
    """A kind of objects, in one version of its group."""

    group: str
    """"" for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @cached_property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of these objects, or of one of them.

        Args:
            namespace: None for all namespaces, and for cluster-scoped objects.
            name: None for the collection.
            subresource: `status` or `scale`.
        """
        parts = [f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return self.kind

    def __hash__(self) -> int:
        return hash((self.group, self.plural))


STREAM_APP = Kind("millpond.dev", "v1alpha1", "StreamApp", "streamapps")
STREAM_ASSIGNMENT = Kind("millpond.dev", "v1alpha1", "StreamAssignment", "streamassignments")
STATE_BOOTSTRAP = Kind("millpond.dev", "v1alpha1", "StateBootstrap", "statebootstraps")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
SERVICE = Kind("", "v1", "Service", "services")
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
ENDPOINTS = Kind("", "v1", "Endpoints", "endpoints")
POD = Kind("", "v1", "Pod", "pods")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
EVENT = Kind("", "v1", "Event", "events")
JOB = Kind("batch", "v1", "Job", "jobs")
POD_DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
TOKEN_REVIEW = Kind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
