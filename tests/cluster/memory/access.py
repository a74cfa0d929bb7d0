"""Permissions: roles and their bindings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.cluster.memory.kinds import Kinds
from tests.cluster.memory.store import Change, Store
from tests.cluster.memory.tokens import User

__all__ = ("Access", "roles")

Object = dict[str, Any]
_GROUP = "rbac.authorization.k8s.io"
_KINDS = frozenset({"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"})
_PUBLIC = frozenset({"/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version"})
_REVIEWS = frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"})


class Access:
    """Decides by the present roles."""

    def __init__(self, store: Store, kinds: Kinds) -> None:
        self._store = store
        self._kinds = kinds
        self._known: dict[tuple[User, str], list[Object]] = {}
        store.listen(self._changed)

    def may(
        self,
        user: User,
        verb: str,
        group: str,
        resource: str,
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> bool:
        """Whether a user may do something with objects."""
        if "system:masters" in user.groups or resource in _REVIEWS:
            return True
        of = f"{resource}/{subresource}" if subresource else resource
        scopes = ("", namespace) if namespace else ("",)
        return any(_allows(rule, verb, group, of, name) for scope in scopes for rule in self._rules(user, scope))

    def may_read(self, user: User, path: str) -> bool:
        """Whether a user may read a path that is no object."""
        return "system:masters" in user.groups or any(path == each or path.startswith(f"{each}/") for each in _PUBLIC)

    def _changed(self, change: Change) -> None:
        if change.kind.kind in _KINDS:
            self._known.clear()

    def _rules(self, user: User, namespace: str) -> list[Object]:
        known = self._known.get((user, namespace))
        if known is None:
            known = self._known[user, namespace] = list(self._found(user, namespace))
        return known

    def _found(self, user: User, namespace: str) -> Iterable[Object]:
        bindings = self._kinds.at(_GROUP, "v1", "rolebindings" if namespace else "clusterrolebindings")
        assert bindings is not None
        for entry in self._store.entries(bindings, namespace):
            binding = entry.object
            if not any(_is(user, subject, namespace) for subject in binding.get("subjects") or ()):
                continue
            reference = binding["roleRef"]
            cluster = reference["kind"] == "ClusterRole"
            roles = self._kinds.at(_GROUP, "v1", "clusterroles" if cluster else "roles")
            assert roles is not None
            role = self._store.get(roles, "" if cluster else namespace, reference["name"])
            if role is not None:
                yield from role.object.get("rules") or ()


def _is(user: User, subject: Object, namespace: str) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case "ServiceAccount":
            return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{subject['name']}"
    return False


def _allows(rule: Object, verb: str, group: str, resource: str, name: str) -> bool:
    def fits(field: str, value: str) -> bool:
        values = rule.get(field) or ()
        return value in values or "*" in values

    if not fits("verbs", verb) or not fits("apiGroups", group):
        return False
    if not fits("resources", resource) and f"*/{resource.partition('/')[2]}" not in (rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames")
    return not names or name in names


def roles() -> Iterable[Object]:
    """The user roles that every cluster has."""
    groups = ("", "apps", "autoscaling", "batch", "discovery.k8s.io", "networking.k8s.io", "policy")
    resources = [
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "services/status",
        "controllerrevisions",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
        "jobs",
        "jobs/status",
        "endpointslices",
        "networkpolicies",
        "poddisruptionbudgets",
    ]
    reads = {"apiGroups": list(groups), "resources": resources, "verbs": ["get", "list", "watch"]}
    writes = {**reads, "verbs": ["create", "delete", "deletecollection", "patch", "update"]}
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}
    access = {"apiGroups": [_GROUP], "resources": ["roles", "rolebindings"], "verbs": ["*"]}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    for name, rules in (
        ("cluster-admin", [everything]),
        ("admin", [reads, writes, secrets, access]),
        ("edit", [reads, writes, secrets]),
        ("view", [reads]),
    ):
        labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
        yield {"metadata": {"name": name, "labels": labels}, "rules": rules}
