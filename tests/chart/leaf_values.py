"""Another value for each leaf of the chart's values, and what else it needs to have an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from helm.generate import CHART

__all__ = ("CONTEXTS", "FIXED", "OTHERS", "leaves", "other_value")

FIXED = {
    "podSecurityContext.runAsNonRoot": "only true is allowed",
    "securityContext.allowPrivilegeEscalation": "only false is allowed",
    "securityContext.readOnlyRootFilesystem": "only true is allowed",
    "securityContext.capabilities.drop": "only [ALL] is allowed",
}
"""Leaves with one allowed value; the schema refuses any other."""

OTHERS: dict[str, Any] = {
    "commonLabels": {"team": "streams"},
    "commonAnnotations": {"team": "streams"},
    "crds.annotations": {"team": "streams"},
    "watchNamespaces": ["shop"],
    "admissionPolicy.failurePolicy": "Ignore",
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}},
    "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
    "tolerations": [{"key": "streams", "operator": "Exists"}],
    "nodeSelector": {"disk": "fast"},
    "resources.requests.cpu": "200m",
    "resources.requests.memory": "256Mi",
    "resources.limits.memory": "1Gi",
    "podSecurityContext.runAsUser": None,
    "podSecurityContext.runAsGroup": None,
    "podSecurityContext.fsGroup": None,
    "podSecurityContext.seccompProfile.type": "Localhost",
    "podDisruptionBudget.maxUnavailable": "50%",
    "podDisruptionBudget.minAvailable": 1,
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "streams"},
    "podAnnotations": {"team": "streams"},
    "deploymentAnnotations": {"team": "streams"},
    "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "extraArgs": ["--log-level=DEBUG"],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "serviceAccount.annotations": {"team": "streams"},
    "certificates.source": "secret",
    "certificates.secretName": "another-secret",
    "certificates.certManager.issuerRef.name": "another-issuer",
    "certificates.certManager.issuerRef.kind": "ClusterIssuer",
    "certificates.certManager.issuerRef.group": "example.com",
    "certificates.certManager.duration": "4320h",
    "certificates.certManager.renewBefore": "24h",
    "networkPolicy.scrape.namespaceLabels": {"team": "watchers"},
    "networkPolicy.scrape.podLabels": {"app": "prometheus"},
    "networkPolicy.query.namespaceLabels": {"team": "watchers"},
    "networkPolicy.query.podLabels": {"app": "portal"},
    "networkPolicy.apiServerCIDRs": ["10.0.0.0/28"],
    "networkPolicy.egress.apiServerPorts": [8443],
    "networkPolicy.egress.extra": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 9092}]}],
    "monitoring.podMonitors.labels": {"release": "prometheus"},
    "monitoring.runbookUrl": "https://runbooks.example.com/streams",
    "monitoring.podMonitors.scrapeTimeout": "7s",
    "monitoring.rules.labels": {"release": "prometheus"},
    "monitoring.dashboards.labels": {"dashboard": "yes"},
    "monitoring.dashboards.annotations": {"grafana_folder": "millpond"},
    "operator.logLevel": "DEBUG",
    "operator.logFormat": "json",
    "operator.lease.duration": "20s",
    "operator.lease.renewDeadline": "11s",
    "operator.defaultWorkerResources": {"requests": {"memory": "512Mi"}},
    "operator.allowedMounts": ["team-*"],
    "operator.allowedTolerations": ["-"],
    "operator.allowedPriorityClasses": ["streams"],
    "test.bootstrapServers": "kafka:9092",
    "test.replicationFactor": 3,
    "test.image.digest": "sha256:" + "0" * 64,
    "test.image.pullPolicy": "Always",
}  # fmt: skip
"""Values that cannot be made from the type of the default."""

_BROKERS = {"test": {"bootstrapServers": "kafka:9092"}}
_CERT_MANAGER = {"certificates": {"source": "certManager", "certManager": {"issuerRef": {"name": "issuer"}}}}
CONTEXTS: dict[str, Mapping[str, Any]] = {
    "admissionPolicy.failurePolicy": {"admissionPolicy": {"create": True}},
    "rbac.clusterRights": {"watchNamespaces": ["shop"]},
    "serviceAccount.create": {"serviceAccount": {"name": "mine"}},
    "podDisruptionBudget.minAvailable": {"podDisruptionBudget": {"maxUnavailable": None, "minAvailable": "20%"}},
    "certificates.source": {"certificates": {"secretName": "mine"}},
    "certificates.certManager": _CERT_MANAGER,
    "networkPolicy.query.podLabels": {"networkPolicy": {"query": {"namespaceLabels": {"team": "watchers"}}}},
    "networkPolicy.egress": {"networkPolicy": {"apiServerCIDRs": ["10.0.0.0/28"]}},
    "networkPolicy.egress.apiServerPorts": {"networkPolicy": {"egress": {"restrict": True}}},
    "networkPolicy.egress.extra": {"networkPolicy": {"egress": {"restrict": True}}},
    "monitoring.podMonitors": {"monitoring": {"podMonitors": {"create": True}}},
    "monitoring.podMonitors.create": {"monitoring": {"podMonitors": {"create": False}}},
    "monitoring.rules.labels": {"monitoring": {"rules": {"create": True}}},
    "monitoring.runbookUrl": {"monitoring": {"rules": {"create": True}}},
    "monitoring.dashboards.labels": {"monitoring": {"dashboards": {"create": True}}},
    "monitoring.dashboards.annotations": {"monitoring": {"dashboards": {"create": True}}},
    "test.credentialsSecret": _BROKERS,
    "test.replicationFactor": _BROKERS,
    "test.image": _BROKERS,
}
"""Values beside a leaf, by the beginning of its path: without them it has no effect, or is refused."""


def leaves(values: Mapping[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the default of each leaf; an empty map is one."""
    given = yaml.safe_load((CHART / "values.yaml").read_text()) if values is None else values
    for key, value in given.items():
        own = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value and not own.endswith("Labels") and own != "monitoring.dashboards.labels":
            yield from leaves(value, own)
        else:
            yield own, value


def other_value(path: str, default: Any) -> Any:
    """Return a value for a leaf that differs from its default."""
    if path in OTHERS:
        return OTHERS[path]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, str) and default[:-1].isdigit():
        return f"{int(default[:-1]) + 1}{default[-1]}"
    assert isinstance(default, str), f"{path} needs a value in OTHERS"
    return f"another-{path.rpartition('.')[2].lower()}"
