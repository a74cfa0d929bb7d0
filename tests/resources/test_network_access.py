"""Who may connect to the workers of an application, and at which port."""

from __future__ import annotations

from millpond_operator.resources import pod_template
from millpond_operator.resources.children import network_policy, service
from tests.resources.examples import SURROUNDINGS, stream_app, variables


def test_queries_come_from_own_workers_and_labelled_pods():
    """Not from the whole namespace, like scrapes of metrics, and not from scrapers."""
    policy = network_policy(stream_app(), SURROUNDINGS)["spec"]
    own = policy["podSelector"]["matchLabels"]
    label = {"millpond.dev/query-access": "allowed"}
    rules = {rule["ports"][0]["port"]: rule["from"] for rule in policy["ingress"]}
    assert set(rules) == {8080, 8081}
    assert rules[8081] == [
        {"podSelector": {"matchLabels": own}},
        {"podSelector": {"matchLabels": label}},
        {"podSelector": {"matchLabels": label}, "namespaceSelector": {"matchLabels": label}},
    ]
    assert {"podSelector": {}} in rules[8080]


def test_queries_have_a_named_port():
    """Besides that of metrics and health, which probes use."""
    ports = service(stream_app())["spec"]["ports"]
    assert {each["name"]: each["port"] for each in ports} == {"http": 8080, "query": 8081}
    (container,) = pod_template(stream_app(), SURROUNDINGS)["spec"]["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": 8080, "query": 8081}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == "http"


def test_workers_with_a_certificate_are_asked_over_tls():
    """Their advertised address is https."""
    name = "MILLPOND_APPLICATION_SERVER"
    assert (
        variables(pod_template(stream_app(), SURROUNDINGS))[name] == "http://$(MILLPOND_WORKER_ID).delays.shop.svc:8081"
    )
    secured = stream_app(config={"query.ssl.certificate.location": "/etc/millpond/query/tls.crt"})
    assert variables(pod_template(secured, SURROUNDINGS))[name] == "https://$(MILLPOND_WORKER_ID).delays.shop.svc:8081"
