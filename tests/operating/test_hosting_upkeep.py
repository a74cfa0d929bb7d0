"""The leader keeps its EndpointSlice and its certificate up to date, on a real API server."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
from datetime import UTC, datetime

import pytest
from cryptography import x509

from millpond_operator.controllers.coordinator_host.tls.certificates import issued
from tests.cluster.waiting import wait_for
from tests.operating.operators import grant_rights
from tests.operating.process import OperatorProcess

COORDINATOR, SECRET = "millpond-coordinator", "millpond-coordinator-tls"
SETTINGS = {"UPKEEP_INTERVAL": "300ms", "TRUST_DELAY": "8s"}

#: Who shows no token may connect four times a second in the long run.
_POLL_S = 0.3


@pytest.fixture
def operator(api, api_server, crds, namespace, tmp_path):
    grant_rights(api, namespace)
    with OperatorProcess(api, api_server.admin, namespace, tmp_path, SETTINGS) as operator:
        operator.await_leading()
        wait_for(lambda: api.find("EndpointSlice", namespace, COORDINATOR), "workers are sent here")
        yield operator
        assert operator.alive, operator.tail()


def trusted_by(api, namespace, name="pay"):
    found = api.find("ConfigMap", namespace, f"{name}-coordinator")
    return found["data"]["ca.crt"] if found else ""


def apply_app(api, namespace, name="pay"):
    api.apply(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"image": "pay:1", "topology": "app:pay", "kafka": {"bootstrapServers": "kafka:9092"}},
        }
    )


def asked(operator, path, trusted):
    """Return the coordinator's answer to a client that trusts these authorities."""
    context = ssl.create_default_context(cadata=trusted)
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", operator.coordinator_port, timeout=30, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_deleted_or_changed_endpoints_point_to_the_leader_again(api, namespace, operator):
    """Without a change by another client, nothing is written."""

    def addresses():
        found = api.find("EndpointSlice", namespace, COORDINATOR) or {}
        return [each["addresses"] for each in found.get("endpoints") or ()]

    api.delete("EndpointSlice", namespace, COORDINATOR)
    wait_for(lambda: addresses() == [["192.0.2.1"]], "the EndpointSlice has its addresses again")
    there = api.get("EndpointSlice", namespace, COORDINATOR)
    version = there["metadata"]["resourceVersion"]

    def requests(verb):
        return operator.metric("rest_client_request_duration_seconds_count", verb=verb)

    def await_looks(times):
        """Wait for this number of reads; return the number of writes until then."""
        before = requests("get")
        wait_for(lambda: requests("get") >= before + times, f"the operator reads {times} more times")
        return requests("apply")

    before = await_looks(4)  # by then that they were written is counted, too
    assert await_looks(6) == before
    assert api.get("EndpointSlice", namespace, COORDINATOR)["metadata"]["resourceVersion"] == version
    there["endpoints"][0]["addresses"] = ["192.0.2.99"]
    api.replace(there)
    wait_for(lambda: addresses() == [["192.0.2.1"]], "they say the leader's again")


@pytest.mark.parametrize("how", ["deleted", "damaged"])
def test_lost_secret_is_restored_unchanged(how, api, namespace, operator):
    """Workers keep the authority that they trust, also under the next leader."""
    before = api.get("Secret", namespace, SECRET)
    if how == "deleted":
        api.delete("Secret", namespace, SECRET)
    else:
        api.replace(before | {"data": before["data"] | {"ca.key": base64.b64encode(b"nothing").decode()}})
    wait_for(lambda: (api.find("Secret", namespace, SECRET) or {}).get("data") == before["data"], "it is back")
    assert asked(operator, "/healthz", base64.b64decode(before["data"]["ca.crt"]).decode()) == 200


def test_new_authority_reaches_all_applications_before_use(api, namespace, operator):
    """At no time does a worker with a current ConfigMap meet a coordinator that it does not trust."""
    for name in ("pay", "delays"):
        apply_app(api, namespace, name)
    wait_for(lambda: all(trusted_by(api, namespace, name) for name in ("pay", "delays")), "applications")
    first = trusted_by(api, namespace)
    secret = api.get("Secret", namespace, SECRET)
    other = issued([f"{COORDINATOR}.{namespace}.svc"], datetime.now(UTC))
    api.replace(secret | {"data": other.as_data()})

    def told():
        assert asked(operator, "/healthz", trusted_by(api, namespace)) == 200
        return all(other.ca.strip() in trusted_by(api, namespace, name) for name in ("pay", "delays"))

    def used():
        trusted = trusted_by(api, namespace)
        assert asked(operator, "/healthz", trusted) == 200
        return trusted.strip() == other.ca.strip()

    wait_for(told, "they are told of it", poll_s=_POLL_S)
    assert asked(operator, "/healthz", first) == 200
    wait_for(used, "it is used", poll_s=_POLL_S)
    with pytest.raises(ssl.SSLCertVerificationError):
        asked(operator, "/healthz", first)


def test_tenant_metrics_are_not_served_to_workers(api, namespace, operator):
    """A pod without a token learns nothing from the coordinator."""
    apply_app(api, namespace)
    pay = {"application_id": "pay", "application_name": "pay", "application_namespace": namespace, "state": "alive"}
    wait_for(lambda: operator.metric("millpond_coordinator_members", **pay) == 0, "the coordinator's metrics")
    wait_for(lambda: trusted_by(api, namespace), "the coordinator's authority")
    trusted = trusted_by(api, namespace)
    assert asked(operator, "/metrics", trusted) == 404
    assert asked(operator, f"/namespaces/{namespace}/v1/applications", trusted) == 401


def test_certificate_of_others_is_awaited_served_and_renewed(api, api_server, crds, namespace, tmp_path):
    """The operator says that it is missing, waits for it, and serves the next one without a restart."""
    grant_rights(api, namespace)
    host = f"{COORDINATOR}.{namespace}.svc"

    def provide(certificates):
        data = {name: text for name, text in certificates.as_data().items() if name != "ca.key"}
        metadata = {"name": "provided", "namespace": namespace}
        api.apply(
            {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
        )

    own = SETTINGS | {"CERTIFICATE_SOURCE": "secret", "CERTIFICATE_SECRET": "provided"}
    role = api.get("Role", namespace, "millpond-operator")
    for rule in role["rules"]:
        if rule.get("resourceNames") == [SECRET]:
            rule |= {"resourceNames": ["provided"], "verbs": ["get"]}
    api.replace(role)
    with OperatorProcess(api, api_server.admin, namespace, tmp_path, own) as operator:
        missing = f"Secret {namespace}/provided for the coordinator's certificate does not exist"
        wait_for(lambda: missing in operator.tail(), "it is told", otherwise=operator.tail)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            operator.fetch("/readyz")
        first = issued([host], datetime.now(UTC))
        provide(first)
        apply_app(api, namespace)
        wait_for(lambda: trusted_by(api, namespace).strip() == first.ca.strip(), "workers get its authority")
        assert asked(operator, "/healthz", first.ca) == 200
        renewed = issued([host], datetime.now(UTC), first)
        provide(renewed)
        serial = x509.load_pem_x509_certificate(renewed.certificate.encode()).serial_number

        def served():
            pem = ssl.get_server_certificate(("127.0.0.1", operator.coordinator_port))
            return x509.load_pem_x509_certificate(pem.encode()).serial_number

        wait_for(lambda: served() == serial, "the renewed one is served", poll_s=_POLL_S)
        assert operator.alive and operator.starts == 1
        assert set(api.get("Secret", namespace, "provided")["data"]) == {"tls.crt", "tls.key", "ca.crt"}
