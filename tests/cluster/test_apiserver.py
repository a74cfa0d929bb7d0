"""The API server that other tests use."""

from __future__ import annotations

import json
import subprocess
import sys
from http import HTTPStatus

import psutil
import pytest

from tests.cluster.api import Api, ApiFailure
from tests.cluster.apiserver import ApiServer
from tests.support.kafka import eventually

_POD_SPEC = {"containers": [{"name": "worker", "image": "example:1"}]}


def stateful_set(namespace, name="delays", replicas=2):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _POD_SPEC},
        },
    }


def test_stateful_sets_create_pods_and_take_them_along(api, namespace):
    """The controllers that the operator relies on run."""
    api.apply(stateful_set(namespace))
    eventually(lambda: len(api.list("Pod", namespace)) == 2, "two pods")
    assert {pod["metadata"]["name"] for pod in api.list("Pod", namespace)} == {"delays-0", "delays-1"}
    api.delete("StatefulSet", namespace, "delays")
    eventually(lambda: not api.list("Pod", namespace), "no pods")


def test_tokens_are_given_for_an_audience_and_reviewed(api, namespace):
    """A token that is bound to a pod has its name, and is invalid for another audience."""
    api.apply(stateful_set(namespace, replicas=1))
    pod = eventually_pod(api, namespace, "delays-0")
    token = api.token(namespace, "default", "millpond-coordinator", pod)

    def review(audience):
        body = {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1"}
        return api.create({**body, "spec": {"token": token, "audiences": [audience]}})["status"]

    status = review("millpond-coordinator")
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:default"
    assert status["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["delays-0"]
    assert not review("somebody-else").get("authenticated")


def test_roles_limit_users_and_service_accounts(api, api_server, background, namespace):
    """RBAC: nothing without a role, and what it names with one."""
    eventually(lambda: api.find("ServiceAccount", namespace, "default"), "the namespace has its service account")
    accesses = [api_server.user("somebody"), api_server.service_account(api.token(namespace, "default"))]
    for access in accesses:
        with Api(background, access) as client, pytest.raises(ApiFailure) as refused:
            client.list("Pod", namespace)
        assert refused.value.status == HTTPStatus.FORBIDDEN
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": "reader", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    api.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "reader"},
            "subjects": [
                {"kind": "User", "name": "somebody", "apiGroup": rbac},
                {"kind": "ServiceAccount", "name": "default", "namespace": namespace},
            ],
        }
    )
    for access in accesses:
        with Api(background, access) as client:
            eventually(lambda client=client: may_list(client, namespace), "the role is known")


def may_list(client, namespace):
    try:
        return client.list("Pod", namespace) == []
    except ApiFailure:
        return False


def eventually_pod(api, namespace, name):
    eventually(lambda: api.find("Pod", namespace, name), f"pod {name}")
    return api.get("Pod", namespace, name)


def test_refusals_carry_the_api_servers_message(api, namespace):
    """Tests can read the reason."""
    with pytest.raises(ApiFailure) as refused:
        api.apply(stateful_set(namespace, replicas=-1))
    assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.replicas" in refused.value.message


_OWNER = """
import json, sys
from tests.cluster.apiserver import ApiServer
server = ApiServer(controllers=False)
print(json.dumps([str(server.start().directory), server.pid("etcd"), server.pid("kube-apiserver")]), flush=True)
sys.stdin.read()
"""


def test_an_api_server_ends_with_the_process_it_serves(api_server):
    """A killed process leaves nothing behind, not even files."""
    del api_server  # skips where there are no programs
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with owner:
        directory, *pids = json.loads(owner.stdout.readline())
        owner.kill()
    eventually(lambda: not any(running(pid) for pid in pids), "the processes ended")
    eventually(lambda: not __import__("pathlib").Path(directory).exists(), "their files are gone")


def running(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_private_api_server_can_be_frozen(api_server, background):
    """For tests with an API server that hangs for a while."""
    del api_server
    starting = ApiServer(controllers=False)
    with starting as server, Api(background, server.admin) as client:
        with starting.frozen():
            waiting = background.submit(client.inside.list("Namespace"))
            with pytest.raises(TimeoutError):
                waiting.result(0.3)
        assert waiting.result(30)
