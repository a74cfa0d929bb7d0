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
        app: the StreamApp that it scrapes.
        workers: the number of its workers.
    """

    def __init__(self, cluster: Cluster, namespace: str, operator: str, image: str, app: str, workers: int) -> None:  # noqa: PLR0913
        self._cluster = cluster
        self._namespace = namespace
        self._operator = operator
        self._image = image
        self._app = app
        self._workers = workers

    def start(self) -> None:
        """Start it, and wait until it scrapes all pods."""
        self._cluster.kubectl("label", "namespace", self._namespace, "millpond.dev/http-access=allowed", "--overwrite")
        metadata = {"name": _NAME, "namespace": self._namespace}
        files = {each.name: yaml.safe_dump(hasty(yaml.safe_load(each.read_text()))) for each in _RULES.glob("*.yaml")}
        files["prometheus.yml"] = json.dumps(self._configuration(sorted(files)))
        self._cluster.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files},
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._pod()},
        )
        self._cluster.kubectl(
            "-n", self._namespace, "wait", f"pod/{_NAME}", "--for=condition=Ready", f"--timeout={_START_S:g}s"
        )
        eventually(self._scrapes, "Prometheus scrapes the operator and the workers", 60)

    def stop(self) -> None:
        """Delete it."""
        self._cluster.kubectl("-n", self._namespace, "delete", f"pod/{_NAME}", "--grace-period=0", "--force")

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
        """Return its configuration. Debian's Prometheus cannot ask Kubernetes for pods: it finds them by DNS."""

        def job(name: str, targets: list[str], *, honor: bool) -> Object:
            labels = {} if honor else {"namespace": self._namespace}
            return {
                "job_name": name,
                "honor_labels": honor,
                "static_configs": [{"targets": targets, "labels": labels}],
            }

        workers = [f"{self._app}-{each}.{self._app}.{self._namespace}.svc:8080" for each in range(self._workers)]
        return {
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
            "rule_files": [f"/etc/prometheus/{each}" for each in rules],
            "scrape_configs": [
                job("operator", [f"millpond-console.{self._operator}.svc:8081"], honor=True),
                job("workers", workers, honor=False),
            ],
        }

    def _pod(self) -> Object:
        probe = {"httpGet": {"path": "/-/ready", "port": _PORT}, "periodSeconds": 1, "failureThreshold": 60}
        return {
            "automountServiceAccountToken": False,
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
