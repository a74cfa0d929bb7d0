from __future__ import annotations

import dataclasses

import pytest

from millpond.protocol import Epoch, Member, SubtopologySummary, TopologySummary, View
from millpond_operator.resources import (
    RESTARTED_AT,
    Surroundings,
    children,
    claim_growth,
    cleanup_job,
    controller_revision,
    finish,
    must_be_recreated,
    parse,
    pod_template,
    revision_of,
    same,
    stateful_set,
    stream_assignment,
    template_of,
    view_of,
)
from tests.support.kafka import eventually

SURROUNDINGS = Surroundings("https://millpond-coordinator.millpond-system.svc:7070", "-----BEGIN", 4, "millpond-system")

PLAIN: dict[str, object] = {}
ALL = {
    ".metadata/annotations": {RESTARTED_AT: "now"},
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "applicationId": "shop.delays",
    "commitInterval": "90s",
    "processingGuarantee": "at_least_once",
    "kafka/credentialsSecret": "delays-kafka",
    "config": {"app.price": "$5", "consumer.fetch.min.bytes": "1"},
    "env": [
        {"name": "EMPTY", "value": ""},
        {"name": "ZONE", "value": "$(EMPTY)a"},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
    ],
    "state": {
        "size": "1024Mi",
        "storageClassName": "fast",
        "retentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    },
    "resources": {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": 1, "memory": "2e9"}},
    "pod": {
        "labels": {"team": "flights", "empty": ""},
        "annotations": {"example.com/a": ""},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "operator": "Equal", "value": "", "effect": "NoExecute", "tolerationSeconds": 0},
        ],
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [
            {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": "zone"},
        ],
        "terminationGracePeriodSeconds": 15,
        "mounts": [
            {"name": "a", "path": "/data/a", "secret": "a"},
            {"name": "b", "path": "/data/b", "configMap": "b"},
        ],
    },
}
ROUNDED = {
    "state": {"size": "1.5Gi", "ephemeral": True},
    "resources": {
        "requests": {"cpu": "0.12345", "memory": "1000.0001Mi", "ephemeral-storage": "1n"},
        "limits": {"cpu": "0.1235", "memory": "1E30", "ephemeral-storage": "999E"},
    },
}
EPHEMERAL = {"state": {"ephemeral": True, "size": "0.5Gi"}, "suspended": True}

VIEW = View(
    "delays",
    Epoch(3, 8),
    TopologySummary(
        "abc", (SubtopologySummary(0, 2, True, ("counts",), {"flights": 2}), SubtopologySummary(1, 1, False))
    ),
    (Member("delays-0", "http://10.0.0.7:8080", "i1", tags={"zone": "a"}, rack="r"), Member("delays-1", alive=False)),
    owners={"0_0": "delays-0", "0_1": "delays-9"},
    active={"0_0": "delays-0", "0_1": "delays-0", "1_0": "delays-0"},
    standby={"0_0": ("delays-1",)},
    warm_up={"0_1": ("delays-1",)},
)


def everything(app, surroundings=SURROUNDINGS, replicas=0):
    """All manifests that are ever made from a StreamApp."""
    template = pod_template(app, surroundings)
    revision = revision_of(template)
    return [
        *children(app, surroundings),
        controller_revision(app, template, revision, 3),
        stateful_set(app, template, revision, replicas),
        cleanup_job(app),
        stream_assignment(app, VIEW),
    ]


@pytest.mark.parametrize("spec", [PLAIN, ALL, EPHEMERAL, ROUNDED], ids=["plain", "all", "ephemeral", "rounded"])
def test_applying_a_manifest_again_changes_nothing(spec, api, stream_app, namespace):
    """The API server accepts every manifest unchanged; only another leader's epoch would change anything."""
    app = parse(api.create(stream_app(spec)))
    for manifest in everything(app):
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        api.apply(finish(manifest, 4), manager="millpond-operator")

        def unchanged(manifest=manifest, kind=kind, name=name) -> bool:
            before = api.get(kind, namespace, name)  # controllers write the status meanwhile
            assert same(manifest, before), kind
            after = api.apply(finish(manifest, 4), manager="millpond-operator")
            return before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]

        eventually(unchanged, f"applying {kind} again changes nothing")
        newer = api.apply(finish(manifest, 5), manager="millpond-operator")
        assert same(manifest, newer), kind


def test_unwanted_fields_are_noticed_and_removed(api, stream_app, namespace):
    """A field that is no longer in the manifest is removed from the object."""
    app = parse(api.create(stream_app(ALL)))
    less = dataclasses.replace(app, spec=parse(stream_app({"state": ALL["state"]})).spec, annotations={})
    for before, after in zip(everything(app), everything(less), strict=True):
        kind = before["kind"]
        if kind in {"ControllerRevision", "Job"}:  # of these another one is made
            continue
        there = api.apply(finish(before, 4), manager="millpond-operator")
        assert same(after, there) == (before == after), kind
        assert same(after, api.apply(finish(after, 4), manager="millpond-operator")), kind
    pod = api.get("StatefulSet", namespace, "delays")["spec"]["template"]["spec"]
    assert not {"tolerations", "nodeSelector", "imagePullSecrets", "priorityClassName"} & pod.keys()
    assert not pod["containers"][0]["resources"]


def test_revision_returns_its_template_unchanged(api, stream_app, namespace):
    """A rollback uses the same template, with the same revision."""
    app = parse(api.create(stream_app(ALL)))
    template = pod_template(app, SURROUNDINGS)
    made = controller_revision(app, template, revision_of(template))
    api.apply(finish(made, 4), manager="millpond-operator")
    read = api.get("ControllerRevision", namespace, made["metadata"]["name"])
    assert template_of(read) == template
    assert revision_of(template_of(read)) == revision_of(template)


def test_an_assignment_is_read_back_as_it_was_written(api, stream_app, namespace):
    """A coordinator continues from the stored assignment."""
    app = parse(api.create(stream_app()))
    api.apply(finish(stream_assignment(app, VIEW), 4), manager="millpond-operator")
    assert view_of(api.get("StreamAssignment", namespace, "delays")) == VIEW


@pytest.mark.parametrize("spec", [PLAIN, ALL, EPHEMERAL], ids=["plain", "all", "ephemeral"])
def test_pods_are_admitted_where_only_restricted_pods_are(spec, api, stream_app, namespace):
    """Workers and the cleanup run in namespaces that enforce the restricted pod security standard."""
    label = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.patch("Namespace", None, namespace, {"metadata": {"labels": label}})
    eventually(lambda: api.find("ServiceAccount", namespace, "default"), "the default service account is there")
    app = parse(api.create(stream_app(spec)))
    for manifest in everything(app, replicas=1):
        api.apply(finish(manifest, 4), manager="millpond-operator")

    def components() -> set[str]:
        return {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in api.list("Pod", namespace)}

    eventually(lambda: components() == {"worker", "cleanup"}, "there are pods of both kinds")
    worker = api.get("Pod", namespace, "delays-0")
    assert worker["spec"]["automountServiceAccountToken"] is False
    tokens = [
        source["serviceAccountToken"]["audience"]
        for volume in worker["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in source
    ]
    assert tokens == ["millpond-coordinator"]


def test_grown_volume_recreates_the_set_around_its_pods(api, stream_app, namespace):
    """Volumes grow by their claims; the StatefulSet, whose size cannot be changed, is replaced and adopts its pods."""
    small = parse(api.create(stream_app()))
    for manifest in everything(small, replicas=1):
        if manifest["kind"] in {"StatefulSet", "ServiceAccount"}:
            api.apply(finish(manifest, 4), manager="millpond-operator")
    eventually(lambda: api.find("Pod", namespace, "delays-0"), "there is a pod")
    pod = api.get("Pod", namespace, "delays-0")
    claim = api.get("PersistentVolumeClaim", namespace, "state-delays-0")
    there = api.get("StatefulSet", namespace, "delays")

    def wanted(app):
        template = pod_template(app, SURROUNDINGS)
        return stateful_set(app, template, revision_of(template), 1)

    assert claim_growth(small, claim) is None
    assert not must_be_recreated(wanted(small), there)
    large = dataclasses.replace(small, spec=parse(stream_app({"state/size": "2048Mi"})).spec)
    assert claim_growth(large, claim) == {"spec": {"resources": {"requests": {"storage": "2048Mi"}}}}
    assert must_be_recreated(wanted(large), there)

    api.delete("StatefulSet", namespace, "delays", propagationPolicy="Orphan")
    eventually(lambda: api.find("StatefulSet", namespace, "delays") is None, "the StatefulSet is gone")
    again = api.apply(finish(wanted(large), 4), manager="millpond-operator")

    def adopted() -> bool:
        now = api.get("Pod", namespace, "delays-0")["metadata"]
        owners = [owner["uid"] for owner in now.get("ownerReferences", ())]
        return owners == [again["metadata"]["uid"]] and now["uid"] == pod["metadata"]["uid"]

    eventually(adopted, "the pod is adopted")
