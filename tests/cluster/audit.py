"""What operators requested from a real API server, by its audit log, and what their roles allow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cluster.api import Object

__all__ = ("LOG", "Right", "granted", "in_cluster", "refused", "used", "write_policy")

LOG = "audit.log"
_ACCOUNT = "millpond-operator"
_CREATED = 201


class Right(NamedTuple):
    """A permission that an account has, or used."""

    verb: str
    group: str
    resource: str
    """With its subresource: `streamapps/status`."""
    name: str = ""
    """Of the one object that it is about; "" for any."""

    def covers(self, other: Right) -> bool:
        """Whether this permission covers a request."""
        return self[:3] == other[:3] and self.name in {"", other.name}


def write_policy(directory: Path) -> Path:
    """Write the audit policy, which logs only requests of service accounts; return its path."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
    }
    path = directory / "audit-policy.json"
    path.write_text(json.dumps(policy))
    return path


def granted(roles: Iterable[Object]) -> set[Right]:
    """Every permission in the roles, one by one."""
    return {
        Right(verb, group, resource, name)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def used(log: Path, namespace: str) -> set[Right]:
    """The permissions that the operator of a namespace used."""
    found = set()
    for event in _events(log, namespace):
        if event["annotations"].get("authorization.k8s.io/decision") == "allow":
            right = _right(event)
            found.add(right)
            # Who applies what is not there yet needs the right to create it as well.
            if right.verb == "patch" and event["responseStatus"]["code"] == _CREATED:
                found.add(right._replace(verb="create"))
    return found


def refused(log: Path, namespace: str) -> set[Right]:
    """The requests for which the operator of a namespace has no permission."""
    return {
        _right(event)
        for event in _events(log, namespace)
        if event["annotations"].get("authorization.k8s.io/decision") == "forbid"
    }


def in_cluster(log: Path, namespace: str) -> set[Right]:
    """The requests of the operator of a namespace that are about the whole cluster."""
    return {_right(event) for event in _events(log, namespace) if not event["objectRef"].get("namespace")}


def _events(log: Path, namespace: str) -> Iterator[Object]:
    user = f"system:serviceaccount:{namespace}:{_ACCOUNT}"
    text = log.read_text()
    for line in text[: text.rfind("\n") + 1].splitlines():  # the last one may be written now
        event = json.loads(line)
        if event["user"]["username"] == user and "resource" in event.get("objectRef", {}):
            yield {"annotations": {}, **event}


def _right(event: Object) -> Right:
    about = event["objectRef"]
    resource = "/".join(each for each in (about["resource"], about.get("subresource")) if each)
    return Right(event["verb"], about.get("apiGroup", ""), resource, about.get("name", ""))
