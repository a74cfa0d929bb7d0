"""The optional admission policy: what the operator's account may not do, even if it is stolen."""

from __future__ import annotations

import copy

import pytest

from millpond_operator.resources import cleanup_job, pod_template, revision_of, stateful_set
from tests.cluster.api import Api, ApiFailure
from tests.cluster.waiting import wait_for
from tests.operating.operators import grant_rights
from tests.resources.examples import SURROUNDINGS, stream_app

RELEASE = "millpond"
_RBAC = "rbac.authorization.k8s.io"


def policies(rendering, namespace: str) -> list[dict]:
    """The policies for the operator of a namespace, with names that other tests' do not have."""
    objects = rendering.objects({"admissionPolicy": {"create": True}, "crds": {"install": False}}, namespace=namespace)
    found = [each for each in objects if each["kind"].startswith("ValidatingAdmissionPolicy")]
    for each in found:
        each["metadata"]["name"] += f"-{namespace[-8:]}"
        if "policyName" in each["spec"]:
            each["spec"]["policyName"] += f"-{namespace[-8:]}"
    return found


@pytest.fixture
def operator(api, crds, namespace, rendering, background, api_server):
    """A client with the account of an operator that the policy confines."""
    grant_rights(api, namespace)
    theirs = {"name": "theirs", "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs, "data": {"a": "1"}})
    made = policies(rendering, namespace)
    for each in made:
        api.apply(each)
    with Api(background, api_server.service_account(api.token(namespace, "millpond-operator"))) as client:
        # The API server enforces a policy a moment after it was written, and knows of the account's rights a moment
        # after they were granted: without them, everything is refused.
        wait_for(
            lambda: all("ValidatingAdmissionPolicy" in refusal(client, each) for each in refused_by_each(namespace)),
            "all policies are in force",
            otherwise=lambda: [refusal(client, each) for each in refused_by_each(namespace)],
        )
        yield client
    for each in made:
        api.delete(each["kind"], None, each["metadata"]["name"])


def refused_by_each(namespace: str) -> list[dict]:
    """One object for each policy."""
    metadata = {"name": "none", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "millpond-snapshot-driver"}
    subject = {"kind": "ServiceAccount", "name": "millpond-operator", "namespace": namespace}
    return [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": stateful(namespace)["spec"]},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": namespace},
            "data": {"a": "2"},
        },
        role,
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


def stateful(namespace: str) -> dict:
    """The StatefulSet that the operator makes, without an owner."""
    app = stream_app()
    template = pod_template(app, SURROUNDINGS)
    made = stateful_set(app, template, revision_of(template), 1)
    made["metadata"] = {key: value for key, value in made["metadata"].items() if key != "ownerReferences"}
    made["metadata"]["namespace"] = namespace
    return made


def refusal(client, given: dict) -> str:
    """The policy's message; "" if there is none."""
    try:
        client.apply(given, dry_run=True)
    except ApiFailure as failure:
        assert failure.status in {403, 422}, failure
        return failure.message
    return ""


def changed(given: dict, path: str, value) -> dict:
    made = copy.deepcopy(given)
    *parents, last = path.split(".")
    inner = made
    for each in parents:
        inner = inner[int(each)] if each.isdigit() else inner[each]
    if last.isdigit():
        inner[int(last)] = value
    else:
        inner[last] = value
    return made


POD = "spec.template.spec"
ATTACKS = {
    "the host's network": (f"{POD}.hostNetwork", True, "host's network"),
    "the host's processes": (f"{POD}.hostPID", True, "host's network"),
    "a volume of the host": (f"{POD}.volumes.0", {"name": "tmp", "hostPath": {"path": "/"}}, "empty directories only"),
    "a token of the API server": (
        f"{POD}.volumes.0",
        {"name": "tmp", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        "for the coordinator only",
    ),
    "a privileged container": (
        f"{POD}.containers.0.securityContext",
        {"allowPrivilegeEscalation": True},
        "no privileges",
    ),
    "a port of the host": (
        f"{POD}.containers.0.ports.0",
        {"name": "http", "containerPort": 80, "hostPort": 80},
        "no ports of the host",
    ),
    "root": (f"{POD}.securityContext.runAsUser", 0, "do not run as root"),
    "another service account": (f"{POD}.serviceAccountName", "admin", "service account of their application"),
    "a workload of nobody": ("metadata.labels", {"app": "mine"}, "the label millpond.dev/app"),
}


def test_pods_with_more_than_an_application_needs_are_refused(operator, namespace):
    """The StatefulSet and the Job that the operator makes are accepted, and each variation is refused by name."""
    made = stateful(namespace)
    assert refusal(operator, made) == ""
    job = cleanup_job(stream_app())
    job["metadata"]["namespace"] = namespace
    assert refusal(operator, job) == ""
    for name, (path, value, told) in ATTACKS.items():
        assert told in refusal(operator, changed(made, path, value)), name
    assert "service account of their application" in refusal(
        operator, changed(job, f"{POD}.serviceAccountName", "admin")
    )
    init = [{"name": "more", "image": "a", "securityContext": {"runAsUser": 0}}]
    assert "no privileges" in refusal(operator, changed(made, f"{POD}.initContainers", init))


def test_rights_are_granted_to_snapshots_only(operator, namespace):
    """The operator can bind the drivers' role to nobody else, and write no other role."""
    labels = {"millpond.dev/app": "delays"}

    def binding(role: dict, subject: dict) -> dict:
        return {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding",
                "metadata": {"name": "a-snapshot", "namespace": namespace, "labels": labels},
                "roleRef": {"apiGroup": _RBAC, **role},
                "subjects": [{"kind": "ServiceAccount", **subject}]}  # fmt: skip

    driver = {"kind": "ClusterRole", "name": "millpond-snapshot-driver"}
    own = {"name": "a-snapshot", "namespace": namespace}
    assert refusal(operator, binding(driver, own)) == ""
    assert "service accounts of snapshots" in refusal(operator, binding(driver, own | {"name": "millpond-operator"}))
    assert "service accounts of snapshots" in refusal(operator, binding(driver, own | {"namespace": "default"}))
    role = {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "a", "namespace": namespace},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}]}  # fmt: skip
    assert "progress of a snapshot" in refusal(operator, role)


def test_objects_of_others_are_left_alone(operator, api, namespace):
    """The operator changes and deletes only what belongs to a StreamApp; users are not confined."""
    metadata = {"name": "theirs", "namespace": namespace}
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
    assert "belong to it" in refusal(operator, theirs | {"data": {"a": "2"}})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})
    api.create(pod)
    with pytest.raises(ApiFailure, match="belong to it"):
        operator.delete("Pod", namespace, "theirs")
    api.delete("Pod", namespace, "theirs")
