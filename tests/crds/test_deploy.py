from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml

from tests.cluster.api import KINDS, ApiFailure
from tests.cluster.installing import kustomized, manifests
from tests.cluster.waiting import wait_for
from tests.crds.conftest import REPOSITORY

DEPLOY = REPOSITORY / "deploy"
NAMESPACE = "millpond-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:millpond-operator"

NEEDED = [
    ("patch", "apps", "statefulsets", "shop", ""),
    ("create", "authentication.k8s.io", "tokenreviews", "", ""),
    ("update", "coordination.k8s.io", "leases", NAMESPACE, "millpond-operator"),
]
"""One of each role."""
DENIED = [
    *((verb, "", "secrets", where, "") for verb in ("get", "list", "watch") for where in (NAMESPACE, "shop", "")),
    ("get", "", "secrets", "shop", "millpond-coordinator-tls"),
    ("create", "", "secrets", "shop", ""),
    ("create", "", "pods", "shop", ""),
    ("create", "", "pods/exec", "shop", ""),
    ("get", "", "pods", "shop", ""),
    ("delete", "", "persistentvolumeclaims", "shop", ""),
    ("list", "", "nodes", "", ""),
    *(("delete", "", resource, "shop", "") for resource in ("services", "configmaps", "serviceaccounts")),
    ("update", "millpond.dev", "streamapps", "shop", ""),
    ("create", "millpond.dev", "streamapps", "shop", ""),
    ("delete", "millpond.dev", "streamassignments", "shop", ""),
    ("patch", "coordination.k8s.io", "leases", NAMESPACE, "millpond-operator"),
    ("delete", "millpond.dev", "streamapps", "shop", ""),
    ("create", "", "serviceaccounts/token", "shop", ""),
    ("impersonate", "", "users", "", ""),
    ("bind", "rbac.authorization.k8s.io", "clusterroles", "", ""),
    ("update", "coordination.k8s.io", "leases", "kube-system", ""),
]


def deployed(namespace: str = NAMESPACE) -> list[dict]:
    """All objects of the deployment; in another namespace, cluster-scoped ones have another name."""
    found = kustomized(DEPLOY)
    if namespace == NAMESPACE:
        return found
    text = json.dumps(found).replace(NAMESPACE, namespace)
    renamed = json.loads(text)
    for each in renamed:
        if not KINDS[each["kind"]].namespaced and each["kind"] != "Namespace":
            each["metadata"]["name"] += f"-{namespace}"
        if each["kind"] == "ClusterRoleBinding":
            each["roleRef"]["name"] += f"-{namespace}"
    return renamed


@pytest.fixture(scope="module")
def installed_operator(api, crds):
    for each in deployed():
        if each["kind"] != "Deployment":  # nothing would run its pods
            api.apply(each)


def review(api, verb, group, resource, namespace, name) -> bool:
    resource, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource,
             "namespace": namespace, "name": name}  # fmt: skip
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    spec = {"user": OPERATOR, "groups": groups, "resourceAttributes": asked}
    made = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    return api.create(made)["status"]["allowed"]


def test_the_operator_may_do_nothing_beyond_its_work(api, installed_operator):
    """The API server evaluates the installed roles; tests/operating/test_rights.py has what the operator needs."""

    def refused():
        return [each for each in NEEDED if not review(api, *each)]

    # An API server hears of roles a moment after they were written.
    wait_for(lambda: not refused(), "it may do what it does", otherwise=refused)
    assert [each for each in DENIED if review(api, *each)] == []


def test_roles_have_no_wildcards():
    """All permissions are explicit; Secrets are never listed."""
    rules = [rule for each in deployed() if "Role" in each["kind"] for rule in each.get("rules", ())]
    assert len(rules) > 15
    for rule in rules:
        assert "*" not in json.dumps(rule)
        if "secrets" in rule["resources"]:
            assert not {"list", "watch", "delete"} & set(rule["verbs"])
            assert rule.get("resourceNames") == ["millpond-coordinator-tls"] or rule["verbs"] == ["create"]


def test_namespace_editors_may_edit_applications(api, installed_operator):
    """Kubernetes' user roles include those of the operator."""
    roles = {each["metadata"]["name"]: each for each in deployed() if each["kind"] == "ClusterRole"}
    aggregated = "rbac.authorization.k8s.io/aggregate-to-"
    assert roles["millpond-view"]["metadata"]["labels"][f"{aggregated}view"] == "true"
    assert roles["millpond-edit"]["metadata"]["labels"][f"{aggregated}edit"] == "true"
    assert "streamapps/status" not in roles["millpond-edit"]["rules"][0]["resources"]


def test_deployment_is_accepted_and_its_pods_are_restricted(api, installed_operator):
    """Its namespace enforces the restricted standard, and its pods satisfy it."""
    (deployment,) = (each for each in deployed() if each["kind"] == "Deployment")
    api.apply(deployment, dry_run=True)
    template = deployment["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | {"name": "a", "namespace": NAMESPACE},
           "spec": template["spec"]}  # fmt: skip
    api.apply(pod, dry_run=True)
    pod["spec"]["containers"][0].pop("securityContext")
    with pytest.raises(ApiFailure, match="violates PodSecurity"):
        api.apply(pod, dry_run=True)


def test_the_deployment_runs_as_little_as_it_can():
    """Two replicas, a read-only root, and its namespace by the downward API."""
    (deployment,) = (each for each in deployed() if each["kind"] == "Deployment")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python", "-m", "millpond_operator"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in container["env"]} == {
        "MILLPOND_OPERATOR_POD_NAME": "metadata.name",
        "MILLPOND_OPERATOR_NAMESPACE": "metadata.namespace",
        "MILLPOND_OPERATOR_POD_IP": "status.podIP",
    }
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"coordinator": 7070, "http": 8081}


def test_the_leader_alone_says_where_the_coordinator_is(api, installed_operator):
    """The Service has no selector: only the operator writes its addresses."""
    service = api.get("Service", NAMESPACE, "millpond-coordinator")
    assert "selector" not in service["spec"]
    assert [(each["name"], each["port"]) for each in service["spec"]["ports"]] == [("coordinator", 7070)]


def test_every_file_is_installed():
    """The kustomizations name all files in deploy/ and crds/."""
    for directory, name in ((DEPLOY, "kustomization.yaml"), (REPOSITORY / "crds", "Kustomization")):
        listed = set(yaml.safe_load((directory / name).read_text())["resources"])
        assert listed == {each.name for each in directory.glob("*.yaml")} - {name}
    assert {each["kind"] for each in manifests(REPOSITORY / "crds")} == {"CustomResourceDefinition"}


def test_the_deployment_has_no_definition_of_a_custom_resource():
    """Deleting the deployment deletes no StreamApp, and pruning keeps the definitions."""
    assert "CustomResourceDefinition" not in {each["kind"] for each in deployed()}
    for each in kustomized(REPOSITORY / "crds"):
        annotations = each["metadata"]["annotations"]
        assert annotations["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
        assert annotations["kustomize.toolkit.fluxcd.io/prune"] == "disabled"


def test_uninstalling_the_operator_leaves_applications_as_they_are(api, crds, namespace, stream_app):
    """After deleting all of deploy/, the StreamApp has the same version."""
    app = api.create(stream_app())
    objects = deployed(f"uninstalled-{namespace[-8:]}")
    for each in objects:
        api.apply(each)
    for each in reversed(objects):
        api.delete(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])

    def left() -> list[str]:
        return [each["kind"] for each in objects
                if api.find(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])]  # fmt: skip

    wait_for(lambda: not left(), "all of the deployment is gone", otherwise=left)
    assert api.get("StreamApp", namespace, "delays") == app


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed; install it to render deploy/")
def test_kubectl_renders_the_deployment():
    """`kubectl apply -k deploy/` needs no network and names one image."""
    told = subprocess.run(["kubectl", "kustomize", DEPLOY], check=True, capture_output=True, text=True)
    rendered = list(yaml.safe_load_all(told.stdout))
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    for each in deployed():
        assert (each["kind"], each["metadata"]["name"]) in by_name
    assert len(rendered) == len(deployed())
    assert re.findall(r"^ *(?:- )?image: (.*)$", told.stdout, re.MULTILINE) == ["millpond-operator:0.1.0"]
    assert by_name["ClusterRoleBinding", "millpond-operator"]["subjects"][0]["namespace"] == NAMESPACE
