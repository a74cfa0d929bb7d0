"""What an application has whatever revision it runs: access, addresses, and protection."""

from __future__ import annotations

from .environment import HTTP_PORT
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
"""Label of namespaces whose pods may reach all workers over HTTP, such as those that metrics are scraped from."""


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
            "ports": [{"name": "http", "port": HTTP_PORT, "protocol": "TCP", "targetPort": "http"}],
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
    """Workers are reached over HTTP from their own namespace, by the operator, and from namespaces labelled for it.

    Where workers connect to is not restricted: brokers may be anywhere, and name each other's addresses themselves.
    """
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": surroundings.operator_namespace}},
        "podSelector": {"matchLabels": dict(OPERATOR_LABELS)},
    }
    invited = {"namespaceSelector": {"matchLabels": {HTTP_ACCESS: "allowed"}}}
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
                }
            ],
        },
    }
