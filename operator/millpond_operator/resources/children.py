"""What an application has whatever revision it runs: access, addresses, and protection."""

from __future__ import annotations

from .environment import HTTP_PORT, QUERY_PORT
from .metadata import coordinator_config_name, metadata, selector
from .names import Object, Surroundings
from .streamapp import StreamApp

__all__ = (
    "children",
    "coordinator_config_map",
    "network_policy",
    "pod_disruption_budget",
    "service",
    "service_account",
)

OPERATOR_LABELS = {"app.kubernetes.io/name": "millpond-operator"}
"""How the operator's own pods are known."""
HTTP_ACCESS = "millpond.dev/http-access"
"""Label of namespaces whose pods may reach metrics and health of all workers, such as those that scrape them."""
QUERY_ACCESS = "millpond.dev/query-access"
"""Label of pods that may query applications of their own namespace, and of all if their namespace has the label too."""


def children(app: StreamApp, surroundings: Surroundings) -> list[Object]:
    """All that does not depend on the rollout, what others refer to first."""
    return [
        service_account(app),
        coordinator_config_map(app, surroundings),
        service(app),
        pod_disruption_budget(app),
        network_policy(app, surroundings),
    ]


def service_account(app: StreamApp) -> Object:
    """Who the workers are. They are nobody to the API server: only the coordinator asks for their token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(app),
        "automountServiceAccountToken": False,
    }


def coordinator_config_map(app: StreamApp, surroundings: Surroundings) -> Object:
    """How workers know that the coordinator is the coordinator."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(app, coordinator_config_name(app)),
        "data": {"ca.crt": surroundings.ca_pem},
    }


def service(app: StreamApp) -> Object:
    """A name for each worker; workers look each other up while they restore as well."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(app),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(app),
            "ports": [
                {"name": "http", "port": HTTP_PORT, "protocol": "TCP", "targetPort": "http"},
                {"name": "query", "port": QUERY_PORT, "protocol": "TCP", "targetPort": "query"},
            ],
        },
    }


def pod_disruption_budget(app: StreamApp) -> Object:
    """Nodes are drained of one worker at a time; a worker that does not work stands in nobody's way."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(app),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(app)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def network_policy(app: StreamApp, surroundings: Surroundings) -> Object:
    """Queries come from the application's own workers and from pods labelled for it; metrics and health are read from the
    own namespace, by the operator, and from namespaces labelled for it.

    Where workers connect to is not restricted: brokers may be anywhere, and name each other's addresses themselves.
    """
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": surroundings.operator_namespace}},
        "podSelector": {"matchLabels": dict(OPERATOR_LABELS)},
    }
    invited = {"namespaceSelector": {"matchLabels": {HTTP_ACCESS: "allowed"}}}
    workers = {"podSelector": {"matchLabels": selector(app)}}
    client = {"podSelector": {"matchLabels": {QUERY_ACCESS: "allowed"}}}
    client_elsewhere = client | {"namespaceSelector": {"matchLabels": {QUERY_ACCESS: "allowed"}}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(app),
        "spec": {
            "podSelector": {"matchLabels": selector(app)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": {}}, operator, invited],
                    "ports": [{"port": HTTP_PORT, "protocol": "TCP"}],
                },
                {
                    "from": [workers, client, client_elsewhere],
                    "ports": [{"port": QUERY_PORT, "protocol": "TCP"}],
                },
            ],
        },
    }
