"""The console of a real operator process, through a real API server's proxy."""

from __future__ import annotations

import dataclasses
import http.client
import socket

import pytest
import yaml

from tests.cluster.api import Api, ApiFailure
from tests.cluster.waiting import wait_for
from tests.operating.operators import ROOT, grant_rights
from tests.operating.process import OperatorProcess

SERVICE = "millpond-console"
POD = "operator-0"


@pytest.fixture(scope="module")
def address() -> str:
    """An address of this machine at which an API server may reach a pod: not that of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("This machine has only a loopback interface, to which API servers proxy nothing.")
        return str(probe.getsockname()[0])


@pytest.fixture
def operator(api, api_server, crds, namespace, tmp_path, address):
    grant_rights(api, namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "namespace": namespace},
        "spec": {"containers": [{"name": "operator", "image": "millpond-operator"}]},
    }
    api.create(pod)
    api.patch("Pod", namespace, POD, {"status": {"podIP": address, "podIPs": [{"ip": address}]}}, subresource="status")
    documents = yaml.safe_load_all((ROOT / "deploy" / "coordinator.yaml").read_text())
    service = next(each for each in documents if each["metadata"]["name"] == SERVICE)
    api.create(service | {"metadata": service["metadata"] | {"namespace": namespace}})
    settings = {"HTTP_HOST": "0.0.0.0", "POD_IP": address, "UPKEEP_INTERVAL": "300ms"}
    with OperatorProcess(api, api_server.admin, namespace, tmp_path, settings, name=POD) as operator:
        operator.await_leading()
        yield operator
        assert operator.alive, operator.tail()


def proxied(api, namespace, path):
    """Return what a person with the right services/proxy gets; text is under `text`."""
    return api.request("GET", f"/api/v1/namespaces/{namespace}/services/http:{SERVICE}:8081/proxy{path}")


def test_console_is_reached_through_the_api_server(api, namespace, operator):
    """The leader writes its address for API servers of both kinds, and serves the page and the documents there."""
    api.create(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": "pay", "namespace": namespace},
            "spec": {"image": "pay:1", "topology": "app:pay", "kafka": {"bootstrapServers": "kafka:9092"}},
        }
    )
    wait_for(lambda: api.find("Endpoints", namespace, SERVICE), "the API server's proxy knows the console")
    page = proxied(api, namespace, "/console/")
    assert 'src="main.js"' in page["text"]

    def listed():
        found = proxied(api, namespace, "/api/applications")["applications"]
        return [(each["namespace"], each["name"]) for each in found]

    wait_for(lambda: listed() == [(namespace, "pay")], "the operator knows the StreamApp")
    wait_for(
        lambda: proxied(api, namespace, f"/api/applications/{namespace}/pay").get("conditions"),
        "the operator has written conditions, and the console has them",
    )
    slice_ = api.get("EndpointSlice", namespace, SERVICE)
    assert [each["targetRef"]["name"] for each in slice_["endpoints"]] == [POD]


def test_endpoints_that_others_change_point_to_the_leader_again(api, namespace, operator):
    """Or the console would be another program's page."""
    wait_for(lambda: api.find("Endpoints", namespace, SERVICE), "the console has an address")
    api.delete("Endpoints", namespace, SERVICE)
    api.delete("EndpointSlice", namespace, SERVICE)
    wait_for(lambda: api.find("Endpoints", namespace, SERVICE), "the console has an address again")
    wait_for(lambda: api.find("EndpointSlice", namespace, SERVICE), "the console has an address again")


def test_replica_that_stands_by_answers_with_one_sentence(api, api_server, namespace, operator, tmp_path):
    """It knows no applications, and must not show an empty list."""
    with OperatorProcess(api, api_server.admin, namespace, tmp_path, name="operator-1") as other:
        wait_for(lambda: _answers(other), "the other replica serves HTTP")
        status, text = answer(other, "/api/applications")
        assert status == 503
        assert text == "This replica of the operator stands by and knows no applications: ask the leading one.\n"


def answer(operator, path):
    connection = http.client.HTTPConnection("127.0.0.1", operator.http_port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def _answers(operator) -> bool:
    try:
        return answer(operator, "/healthz")[0] == 200
    except OSError:
        return False


def test_right_to_the_proxy_is_needed(api, api_server, background, namespace, operator):
    """The API server guards the console: an account sees it only with the Role of deploy/, which is bound to nobody."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant", "namespace": namespace}})
    token = api.token(namespace, "tenant")
    access = dataclasses.replace(api_server.admin, certificate_file=None, token=token)

    def status() -> int:
        try:
            return 200 if "applications" in proxied(tenant, namespace, "/api/applications") else 0
        except ApiFailure as failure:
            return failure.status

    with Api(background, access) as tenant:
        wait_for(lambda: api.find("Endpoints", namespace, SERVICE), "the API server's proxy knows the console")
        assert status() == 403
        api.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": SERVICE, "namespace": namespace},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": SERVICE},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
            }
        )
        wait_for(lambda: status() == 200, "the account may see the console")
