"""An application's objects that do not depend on its revision: account, Service, disruption budget, network policy."""

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
"""The labels of the operator's own pods."""
HTTP_ACCESS = "millpond.dev/http-access"
"""Label of namespaces whose pods may read metrics and health of all workers, such as a Prometheus."""
QUERY_ACCESS = "millpond.dev/query-access"
"""Label of pods that may query applications of their own namespace; of all namespaces if their namespace has it too."""


def children(app: StreamApp, surroundings: Surroundings) -> list[Object]:
    """Return all objects that do not depend on the rollout; those that others refer to come first."""
    return [
        service_account(app),
        coordinator_config_map(app, surroundings),
        service(app),
        pod_disruption_budget(app),
        network_policy(app, surroundings),
    ]


def service_account(app: StreamApp) -> Object:
    """Return the workers' service account. It has no permissions; only the coordinator reviews its tokens."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(app),
        "automountServiceAccountToken": False,
    }


def coordinator_config_map(app: StreamApp, surroundings: Surroundings) -> Object:
    """Return the ConfigMap with the coordinator's certificate authority."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(app, coordinator_config_name(app)),
        "data": {"ca.crt": surroundings.ca_pem},
    }


def service(app: StreamApp) -> Object:
    """Return the headless Service that gives each worker a name, before it is ready too: workers look each other up."""
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
    """Return the PodDisruptionBudget: evictions take one worker at a time; unhealthy workers do not block them."""
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
    """Return the NetworkPolicy.

    Queries are allowed from the application's own workers and from labelled pods; metrics and health from the own
    namespace, from the operator, and from labelled namespaces. Outgoing connections are not restricted: brokers may be
    anywhere, and advertise their own addresses.
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
