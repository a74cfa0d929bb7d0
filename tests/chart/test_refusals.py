"""Values that contradict each other are refused before anything is installed, with the reason and the cure."""

from __future__ import annotations

import pytest

from tests.chart.rendering import Refused, with_value

CONTRADICTIONS = {
    "a label by which objects are found": (
        {"commonLabels": {"app.kubernetes.io/name": "streams"}},
        "commonLabels has app.kubernetes.io/name, which the chart sets itself",
    ),
    "a label by which pods are found": (
        {"podLabels": {"app.kubernetes.io/instance": "streams"}},
        "podLabels has app.kubernetes.io/instance, which the chart sets itself",
    ),
    "names that Services cannot have": ({"fullnameOverride": "9lives"}, "names of Services must begin with a letter"),
    "all namespaces without cluster rights": (
        {"rbac": {"clusterRights": False}},
        "watchNamespaces is empty.*would have no rights.*Name the namespaces",
    ),
    "a policy of the cluster without cluster rights": (
        {"rbac": {"clusterRights": False}, "watchNamespaces": ["shop"], "admissionPolicy": {"create": True}},
        "admissionPolicy.create needs rbac.clusterRights",
    ),
    "an account that nobody creates": ({"serviceAccount": {"create": False}}, "serviceAccount.name is empty"),
    "an own certificate without a Secret": ({"certificates": {"source": "secret"}}, "certificates.secretName is empty"),
    "cert-manager without an issuer": ({"certificates": {"source": "certManager"}}, "issuerRef.name is empty"),
    "cert-manager's issuer and an own Secret": (
        {"certificates": {"source": "secret", "secretName": "a", "certManager": {"issuerRef": {"name": "b"}}}},
        "certificates.certManager.issuerRef.name is set and certificates.source is secret",
    ),
    "a certificate that is renewed all the time": (
        {"certificates": {"certManager": {"renewBefore": "2160h"}}},
        "renewBefore must be shorter",
    ),
    "two budgets": ({"podDisruptionBudget": {"minAvailable": 1}}, "exactly one of minAvailable and maxUnavailable"),
    "no budget": ({"podDisruptionBudget": {"maxUnavailable": None}}, "exactly one of minAvailable and maxUnavailable"),
    "a budget that blocks every eviction": (
        {"podDisruptionBudget": {"minAvailable": 2, "maxUnavailable": None}},
        "no node could be drained",
    ),
    "a lease that is lost before it is given up": (
        {"operator": {"lease": {"renewDeadline": "20s"}}},
        "renewDeadline, which must be shorter than duration",
    ),
    "a lease that is renewed too rarely": (
        {"operator": {"lease": {"retryPeriod": "1m"}}},
        "retryPeriod must be shorter",
    ),
    "a scrape that is longer than its interval": (
        {"monitoring": {"podMonitors": {"interval": "5s"}}},
        "scrapeTimeout must not be longer",
    ),
    "egress without the API server": (
        {"networkPolicy": {"egress": {"restrict": True}}},
        "could not reach the API server",
    ),
    "pods of no namespace": (
        {"networkPolicy": {"query": {"podLabels": {"a": "b"}}}},
        "networkPolicy.query.namespaceLabels is empty",
    ),
    "scrapers of no namespace": (
        {"networkPolicy": {"scrape": {"podLabels": {"a": "b"}, "namespaceLabels": {"millpond.dev/http-access": None}}}},
        "networkPolicy.scrape.namespaceLabels is empty",
    ),
    "credentials without brokers": ({"test": {"credentialsSecret": "a"}}, "test.bootstrapServers is empty"),
    "a setting beside the values": (
        {"extraEnv": [{"name": "MILLPOND_OPERATOR_CONCURRENCY", "value": "9"}]},
        "extraEnv has MILLPOND_OPERATOR_CONCURRENCY",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused_with_their_cure(name, rendering):
    """One sentence with the names of the values, and what to do."""
    values, told = CONTRADICTIONS[name]
    with pytest.raises(Refused, match=told):
        rendering.text(values | {"crds": {"install": False}})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("replicas", 0),
        ("replicas", "2"),
        ("image.tag", "a tag"),
        ("image.digest", "sha256:abc"),
        ("watchNamespaces", "shop"),
        ("watchNamespaces", ["shop", "shop"]),
        ("watchNamespaces", ["*"]),
        ("podSecurityContext.runAsUser", 0),
        ("securityContext.capabilities", {"add": ["NET_ADMIN"]}),
        ("extraVolumes", [{"name": "host", "hostPath": {"path": "/"}}]),
        ("podDisruptionBudget.maxUnavailable", 0),
        ("podDisruptionBudget.minAvailable", "100%"),
        ("operator.resyncInterval", "5 minutes"),
        ("operator.concurrency", 0),
        ("operator.logLevel", "debug"),
        ("certificates.source", "self-signed"),
        ("tolerations", [{"key": "a", "operatr": "Exists"}]),
        ("test.bootstrapServers", "kafka"),
        ("networkPolicy.apiServerCIDRs", ["10.0.0.1"]),
        ("crds.keep", "true"),
    ],
)
def test_values_of_the_wrong_form_are_refused_with_their_path(path, value, rendering):
    """The schema names the value."""
    with pytest.raises(Refused, match=path.replace(".", "/")):
        rendering.text(with_value(path, value))
