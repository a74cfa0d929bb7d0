"""Manifests become the same objects on the API server in memory and on the real one, with all defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api import Api, Object
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.fidelity.comparing import Twins, outcome, twin_servers
from tests.support.kafka import eventually

POD: Object = {
    "containers": [
        {
            "name": "worker",
            "image": "delays:1",
            "command": ["millpond", "run"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "EMPTY", "value": ""},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
            ],
            "startupProbe": {
                "httpGet": {"path": "/healthz", "port": "http"},
                "periodSeconds": 1,
                "failureThreshold": 300,
            },
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}},
            "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 1, "memory": "2e9"}},
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "c", "mountPath": "/c", "readOnly": True}],
        }
    ],
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "tolerations": [{"operator": "Exists"}],
    "topologySpreadConstraints": [
        {
            "topologyKey": "kubernetes.io/hostname",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"a": "b"}},
        }
    ],
    "volumes": [
        {"name": "tmp", "emptyDir": {}},
        {"name": "limited", "emptyDir": {"sizeLimit": "1024Mi"}},
        {
            "name": "c",
            "projected": {
                "defaultMode": 0o440,
                "sources": [
                    {"serviceAccountToken": {"audience": "a", "expirationSeconds": 3600, "path": "token"}},
                    {"configMap": {"name": "c", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                ],
            },
        },
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "m", "configMap": {"name": "m"}},
    ],
}
SET: Object = {
    "replicas": 0,
    "serviceName": "a",
    "podManagementPolicy": "Parallel",
    "updateStrategy": {"type": "OnDelete"},
    "revisionHistoryLimit": 2,
    "selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD},
    "volumeClaimTemplates": [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "state", "labels": {"a": "b"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
    ],
    "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"},
}
APP: Object = {
    "image": "delays:1",
    "topology": "app:delays",
    "kafka": {"bootstrapServers": "kafka:9092"},
    "env": [{"name": "A", "value": "b"}],
    "pod": {"tolerations": [{"operator": "Exists"}], "labels": {"team": "flights"}},
}


def _object(api_version: str, kind: str, **parts: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "labels": {"a": "b"}}, **parts}


MANIFESTS: dict[str, Object] = {
    "ConfigMap": _object("v1", "ConfigMap", data={"a": "1", "b": ""}),
    "Secret": _object("v1", "Secret", data={"a": "MQ=="}),
    "ServiceAccount": _object("v1", "ServiceAccount", automountServiceAccountToken=False),
    "Service": _object(
        "v1",
        "Service",
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"a": "b"},
            "ports": [{"name": "http", "port": 8080, "targetPort": "http"}],
        },
    ),
    "PersistentVolumeClaim": _object(
        "v1",
        "PersistentVolumeClaim",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "fast",  # other tests make a default class on the real server
        },
    ),
    "StatefulSet": _object("apps/v1", "StatefulSet", spec=SET),
    "ControllerRevision": _object("apps/v1", "ControllerRevision", revision=3, data={"spec": {"b": [1, {"c": None}]}}),
    "Job": _object(
        "batch/v1",
        "Job",
        spec={
            "backoffLimit": 4,
            "suspend": True,
            "ttlSecondsAfterFinished": 3600,
            "template": {"spec": {**POD, "restartPolicy": "Never"}},
        },
    ),
    "PodDisruptionBudget": _object(
        "policy/v1",
        "PodDisruptionBudget",
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    ),
    "NetworkPolicy": _object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        spec={
            "podSelector": {"matchLabels": {"a": "b"}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 8080}]}],
        },
    ),
    "Lease": _object(
        "coordination.k8s.io/v1",
        "Lease",
        spec={"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.123456Z"},
    ),
    "EndpointSlice": _object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
        ports=[{"name": "https", "port": 7070}],
    ),
    "Endpoints": _object(
        "v1",
        "Endpoints",
        subsets=[
            {
                "addresses": [{"ip": "10.1.2.3", "targetRef": {"kind": "Pod", "namespace": "a", "name": "b"}}],
                "ports": [{"name": "http", "port": 8081}],
            }
        ],
    ),
    "Role": _object(
        "rbac.authorization.k8s.io/v1",
        "Role",
        rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    ),
    "RoleBinding": _object(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"},
        subjects=[{"kind": "ServiceAccount", "name": "a"}, {"kind": "User", "name": "b"}],
    ),
    "StreamApp": _object("millpond.dev/v1alpha1", "StreamApp", spec=APP),
    "StreamAssignment": _object(
        "millpond.dev/v1alpha1",
        "StreamAssignment",
        spec={"application": "a", "term": 1, "number": 1, "workers": [{"name": "a-0", "active": ["0_0"]}]},
    ),
}
OWNED = {"finalizers": ["example.com/a"], "annotations": {"example.com/a": ""}}


@pytest.fixture(scope="module")
def twins(background: Background, api_server: SharedApiServer) -> Iterator[Twins]:
    """Both servers."""
    with twin_servers(background, api_server) as both:
        yield both


def _in(namespace: str, manifest: Object, **metadata: Any) -> Object:
    return {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace, **metadata}}


def _spec(found: Any) -> Any:
    """The object's spec; controllers write the status meanwhile."""
    if not isinstance(found, dict):
        return found
    own = [each for each in found["metadata"].get("managedFields", ()) if each["manager"] != "kube-controller-manager"]
    made = {key: value for key, value in found.items() if key != "status"}
    return made | {"metadata": {**found["metadata"], "managedFields": own}}


def _at_rest(api: Api, kind: str, namespace: str) -> Object:
    """The object after the controllers' first writes."""

    def done() -> bool:
        found = api.get(kind, namespace, "a")
        if kind == "PersistentVolumeClaim":
            return "finalizers" in found["metadata"]
        observed = found.get("status", {}).get("observedGeneration")
        if kind == "Job":
            return any(each["type"] == "Suspended" for each in found["status"].get("conditions", ()))
        return kind not in {"StatefulSet", "PodDisruptionBudget"} or observed == found["metadata"]["generation"]

    eventually(done, f"controllers have seen the {kind}")
    return api.get(kind, namespace, "a")


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_becomes_the_same_object(kind: str, twins: Twins) -> None:
    """Created or applied, a manifest becomes the same object on both servers."""

    def scenario(api: Api, namespace: str) -> Any:
        made = api.create(_in(namespace, MANIFESTS[kind]))
        api.delete(kind, namespace, "a")
        applied = api.apply(_in(namespace, MANIFESTS[kind], name="b", **OWNED))
        api.patch(kind, namespace, "b", {"metadata": {"finalizers": None}})
        return made, applied

    twins.agree(scenario)


@pytest.mark.parametrize("kind", MANIFESTS)
def test_writes_change_versions_and_generations_alike(kind: str, twins: Twins) -> None:
    """Applying again changes nothing, labels make no new generation, and a restored field is as before."""

    def scenario(api: Api, namespace: str) -> Any:
        told: dict[str, Any] = {}
        api.apply(_in(namespace, MANIFESTS[kind]))
        last = _at_rest(api, kind, namespace)

        def note(step: str, found: Any) -> None:
            nonlocal last
            told[step] = _spec(found)
            if isinstance(found, dict):
                same = found["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]
                if kind != "PersistentVolumeClaim":  # which the real one writes once more, with nothing new in it
                    told[f"{step} writes"] = not same
                last = _at_rest(api, kind, namespace)

        note("same again", api.apply(_in(namespace, MANIFESTS[kind])))
        note("by another", api.apply(_in(namespace, MANIFESTS[kind]), manager="other"))
        note("labelled", api.patch(kind, namespace, "a", {"metadata": {"labels": {"c": "d"}}}))
        note("labelled again", api.patch(kind, namespace, "a", {"metadata": {"labels": {"c": "d"}}}))
        note("label removed", api.patch(kind, namespace, "a", [{"op": "remove", "path": "/metadata/labels/c"}]))
        kept = {key: last["metadata"][key] for key in ("finalizers",) if key in last["metadata"]}
        if kind != "ControllerRevision":  # its data is compared as it was written, to the last blank
            note("replaced", outcome(lambda: api.replace(_in(namespace, MANIFESTS[kind], **kept))))
        note(
            "old version",
            outcome(lambda: api.replace({**last, "metadata": {**last["metadata"], "resourceVersion": "1"}})),
        )
        note("other uid", outcome(lambda: api.replace({**last, "metadata": {**last["metadata"], "uid": "1"}})))
        note("less by another", outcome(lambda: api.apply(_in(namespace, MANIFESTS[kind], labels={}), manager="other")))
        note("less", outcome(lambda: api.apply(_in(namespace, MANIFESTS[kind], labels={}))))
        return told

    twins.agree(scenario)
