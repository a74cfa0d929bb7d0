"""Prometheus as a pod that scrapes the operator and the workers, with the chart's rules in short times."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from e2e.cluster import Cluster, Object, eventually, path_of
from e2e.commands import ROOT
from e2e.kafka import RESTRICTED

__all__ = ("PrometheusPod", "hasty")

_NAME = "prometheus"
_PORT = 9090
_START_S = 90.0
_RULES = ROOT / "helm" / "millpond" / "files" / "rules"
_HOLD, _RANGE, _OFFSET = "2s", "20s", "15s"
_RBAC = "rbac.authorization.k8s.io"


def hasty(rules: Object) -> Object:
    """Return rules that fire and end within seconds: with short holds, ranges and offsets, and the same limits."""

    def quick(rule: Object) -> Object:
        expr = re.sub(r"\[\d+[smhd]\]", f"[{_RANGE}]", rule["expr"])
        expr = re.sub(r"offset \d+[smhd]", f"offset {_OFFSET}", expr)
        return {**rule, "expr": expr, **({"for": _HOLD} if "alert" in rule else {})}

    return {"groups": [{**group, "rules": [quick(each) for each in group["rules"]]} for group in rules["groups"]]}


class PrometheusPod:
    """A Prometheus in a namespace that workers and operator answer.

    Args:
        cluster: where it runs.
        namespace: where it is, and where the workers are.
        operator: the namespace of the operator.
        image: of Prometheus.
    """

    def __init__(self, cluster: Cluster, namespace: str, operator: str, image: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._operator = operator
        self._image = image

    def start(self) -> None:
        """Start it, and wait until it scrapes all pods."""
        self._cluster.kubectl("label", "namespace", self._namespace, "millpond.dev/http-access=allowed", "--overwrite")
        metadata = {"name": _NAME, "namespace": self._namespace}
        files = {each.name: yaml.safe_dump(hasty(yaml.safe_load(each.read_text()))) for each in _RULES.glob("*.yaml")}
        files["prometheus.yml"] = json.dumps(self._configuration(sorted(files)))
        self._cluster.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
            *(each for namespace in (self._namespace, self._operator) for each in self._rights(namespace)),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._pod()},
        )
        self._cluster.kubectl(
            "-n", self._namespace, "wait", f"pod/{_NAME}", "--for=condition=Ready", f"--timeout={_START_S:g}s"
        )
        eventually(self._scrapes, "Prometheus scrapes the operator and the workers", 60)

    def stop(self) -> None:
        """Delete it, with its rights in the operator's namespace."""
        self._cluster.kubectl("-n", self._namespace, "delete", f"pod/{_NAME}", "--grace-period=0", "--force")
        self._cluster.kubectl("-n", self._operator, "delete", f"role/{_NAME}", f"rolebinding/{_NAME}")

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        alerts = self._get("alerts")["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}

    def _get(self, path: str) -> Any:
        proxy = f"{path_of('pods', self._namespace)}/{_NAME}:{_PORT}/proxy/api/v1/{path}"
        answer = self._cluster.read(proxy)
        assert answer is not None, f"Prometheus has no {path}"
        return answer["data"]

    def _scrapes(self) -> bool:
        targets = self._get("targets")["activeTargets"]
        healthy = {each["scrapePool"] for each in targets if each["health"] == "up"}
        return healthy == {"operator", "workers"} and all(each["health"] == "up" for each in targets)

    def _configuration(self, rules: list[str]) -> Object:
        """Return its configuration: pods are selected and labelled as by the chart's PodMonitors."""

        def job(name: str, namespace: str, labels: dict[str, str], *, honor: bool) -> Object:
            keep = {"__meta_kubernetes_pod_container_port_name": "http", **labels}
            relabel: list[Object] = [
                {"source_labels": [label], "regex": value, "action": "keep"} for label, value in keep.items()
            ]
            relabel += [{"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"}]
            return {
                "job_name": name,
                "honor_labels": honor,
                "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [namespace]}}],
                "relabel_configs": relabel,
            }

        label = "__meta_kubernetes_pod_label_app_kubernetes_io"
        operator = {f"{label}_name": "millpond-operator"}
        workers = {f"{label}_name": "millpond", f"{label}_component": "worker"}
        return {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": [f"/etc/prometheus/{each}" for each in rules],
            "scrape_configs": [
                job("operator", self._operator, operator, honor=True),
                job("workers", self._namespace, workers, honor=False),
            ],
        }

    def _rights(self, namespace: str) -> list[Object]:
        metadata = {"name": _NAME, "namespace": namespace}
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
        subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": self._namespace}
        role = {"apiGroup": _RBAC, "kind": "Role", "name": _NAME}
        return [
            {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
            {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": metadata, "roleRef": role,
             "subjects": [subject]},
        ]  # fmt: skip

    def _pod(self) -> Object:
        probe = {"httpGet": {"path": "/-/ready", "port": _PORT}, "periodSeconds": 1, "failureThreshold": 60}
        return {
            "serviceAccountName": _NAME,
            "enableServiceLinks": False,
            "securityContext": {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
            "containers": [
                {
                    "name": _NAME,
                    "image": self._image,
                    "securityContext": {**RESTRICTED, "readOnlyRootFilesystem": True},
                    "readinessProbe": probe,
                    "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}},
                    "volumeMounts": [
                        {"name": "settings", "mountPath": "/etc/prometheus"},
                        {"name": "data", "mountPath": "/data"},
                    ],
                }
            ],
            "volumes": [
                {"name": "settings", "configMap": {"name": _NAME}},
                {"name": "data", "emptyDir": {}},
            ],
        }
