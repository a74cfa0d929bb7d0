"""A real API server accepts all that the chart renders, and all its pods are restricted."""

from __future__ import annotations

import uuid

import pytest
import yaml

from tests.chart.leaf_values import CONTEXTS, FIXED, leaves, other_value
from tests.chart.rendering import merged, pods_of, with_value
from tests.cluster.installing import install_crds
from tests.support.programs.helm import definitions

_ALONE = {
    "certificates.source", "crds.install", "crds.keep", "monitoring.podMonitors.workers", "networkPolicy.create",
    "podDisruptionBudget.create", "podDisruptionBudget.minAvailable", "rbac.aggregate", "rbac.clusterRights",
    "rbac.create",
    "serviceAccount.create", "uninstallCheck.enabled", "watchNamespaces",
}  # fmt: skip
"""Leaves whose other value renders less, or contradicts another one."""
EVERYTHING = merged(
    *(with_value(path, other_value(path, default)) for path, default in leaves() if path not in {*FIXED, *_ALONE}),
    CONTEXTS["certificates.certManager"],
    {"podSecurityContext": {"seccompProfile": {"localhostProfile": "profile.json"}}},
)
"""Another value for each leaf, where they go together."""

SETS = {
    "the defaults": {},
    "everything": EVERYTHING,
    "namespaced rights": {"rbac": {"clusterRights": False}, "test": {"bootstrapServers": "kafka:9092"}},
    "without user ids": {"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
}


@pytest.fixture(scope="module")
def installed(api, crds, helm, tmp_path_factory):
    """The API server with the definitions of other projects."""
    directory = tmp_path_factory.mktemp("definitions")
    for each in definitions():
        (directory / each.name).write_text(each.read_text())
    install_crds(api, directory)
    return api


@pytest.fixture
def restricted(installed):
    """A namespace that enforces the restricted standard."""
    name = f"chart-{uuid.uuid4().hex[:8]}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    installed.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield name
    installed.delete("Namespace", None, name)


@pytest.mark.parametrize("name", SETS)
def test_all_objects_are_accepted(name, installed, restricted, rendering):
    """A server-side dry run refuses unknown fields, wrong types and CEL that does not compile; pods are restricted."""
    values = SETS[name] | {"watchNamespaces": [restricted]}
    objects = rendering.objects(values, namespace=restricted, release="millpond")
    kinds = {each["kind"] for each in objects}
    assert len(kinds) >= 8
    if name == "everything":
        assert {"PodMonitor", "ValidatingAdmissionPolicy", "Certificate"} <= kinds
    for each in objects:
        if each["kind"] != "Pod":
            installed.apply(each, dry_run=True)
    pods = pods_of(objects)
    assert len(pods) == 3
    for pod in pods:
        account = pod["spec"].pop("serviceAccountName", None)  # it is not there in a dry run
        assert account is not None or pod["metadata"]["name"] == "millpond-test-x"
        installed.apply(pod, dry_run=True)


def test_definitions_of_the_chart_replace_those_that_are_installed(installed, rendering):
    """An upgrade of the chart upgrades the definitions: the API server accepts them over the present ones."""
    found = [each for each in rendering.objects() if each["kind"] == "CustomResourceDefinition"]
    assert len(found) == 3
    for each in found:
        assert yaml.safe_dump(installed.apply(each, dry_run=True)["spec"]["names"]["kind"])
