"""What tests install in a cluster."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from http import HTTPStatus
from pathlib import Path

import yaml

from tests.cluster.api import KINDS, Api, ApiFailure, Object
from tests.cluster.waiting import wait_for

__all__ = ("await_rights", "install_crds", "kustomized", "manifests")


def manifests(directory: Path) -> list[Object]:
    """All objects in the YAML files of a directory, file by file."""
    return [each for file in sorted(directory.glob("*.yaml")) for each in _objects(file.read_text())]


def _objects(text: str) -> list[Object]:
    return copy.deepcopy(_parsed(text))


@functools.cache
def _parsed(text: str) -> list[Object]:
    # Every simulation installs the definitions: parsing them each time would take a tenth of its time.
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


def kustomized(directory: Path) -> list[Object]:
    """All objects that a kustomization applies in its namespace, including those of referenced kustomizations."""
    names = ("kustomization.yaml", "Kustomization")
    (file,) = (directory / name for name in names if (directory / name).exists())
    listed = yaml.safe_load(file.read_text())
    found: list[Object] = []
    for resource in listed["resources"]:
        path = directory / resource
        found += kustomized(path) if path.is_dir() else _objects(path.read_text())
    for each in found:
        if "namespace" in listed and KINDS[each["kind"]].namespaced:
            each["metadata"]["namespace"] = listed["namespace"]
    return found


def install_crds(api: Api, directory: Path) -> None:
    """Install custom resource definitions, and wait until the API server serves them."""
    for manifest in manifests(directory):
        if manifest["kind"] == "CustomResourceDefinition":
            api.apply(manifest)
            name = manifest["metadata"]["name"]
            wait_for(functools.partial(_served, api, name), f"{name} is served", poll_s=0.02)


def _served(api: Api, name: str) -> bool:
    found = api.get("CustomResourceDefinition", None, name)
    conditions = {each["type"]: each["status"] for each in found.get("status", {}).get("conditions") or ()}
    if conditions.get("Established") != "True":
        return False
    group, plural = found["spec"]["group"], found["spec"]["names"]["plural"]
    versions = [each["name"] for each in found["spec"]["versions"] if each["served"]]
    try:
        return all(
            any(each["name"] == plural for each in api.request("GET", f"/apis/{group}/{version}")["resources"])
            for version in versions
        )
    except ApiFailure as failure:
        if failure.status != HTTPStatus.NOT_FOUND:
            raise
        return False


def await_rights(api: Api, user: str, namespace: str, rules: Iterable[Object]) -> None:
    """Wait until a user has the rights of a Role: the API server knows of a binding a moment after it was written."""
    wait_for(lambda: all(_may(api, user, namespace, each) for each in rules), f"{user} has its rights", poll_s=0.02)


def _may(api: Api, user: str, namespace: str, rule: Object) -> bool:
    """Return whether a user has the first right of a rule."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {
        "namespace": namespace, "verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource,
        "subresource": subresource, "name": next(iter(rule.get("resourceNames", ())), ""),
    }  # fmt: skip
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review = kind | {"spec": {"user": user, "resourceAttributes": asked}}
    return bool(api.request("POST", f"/apis/{kind['apiVersion']}/subjectaccessreviews", review)["status"]["allowed"])
