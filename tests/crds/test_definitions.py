from __future__ import annotations

import json
import urllib.request

import pytest

from millpond_operator.resources import parse, parse_bootstrap
from tests.cluster.api import ApiFailure

KINDS = ("StreamApp", "StreamAssignment", "StateBootstrap")
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def condition(type: str, status: str) -> dict[str, str]:
    return {"type": type, "status": status, "reason": "Because", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def table_of(api, path: str):
    """The table that the API server returns to kubectl."""
    asked = urllib.request.Request(api.access.url + path, headers={"Accept": _TABLE})
    with urllib.request.urlopen(asked, context=api.access.ssl_context()) as answer:
        return json.load(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_definitions_are_small(kind, definitions):
    """A definition easily fits into the annotation with which kubectl keeps what it applied."""
    assert len(json.dumps(definitions[kind])) < 100_000


@pytest.mark.parametrize("kind", KINDS)
def test_schemas_are_structural_and_accepted(kind, api):
    """The API server serves the schema unchanged."""
    plural = f"{kind.lower()}s.millpond.dev"
    found = api.get("CustomResourceDefinition", None, plural)
    conditions = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    assert "NonStructuralSchema" not in conditions
    assert conditions["NamesAccepted"] == conditions["Established"] == "True"
    assert "x-kubernetes-preserve-unknown-fields" not in json.dumps(found["spec"])


def test_short_names_and_categories(api):
    """`kubectl get sapp`, `kubectl get stream` and `kubectl get all` work."""
    listed = api.request("GET", "/apis/millpond.dev/v1alpha1")["resources"]
    found = {each["name"]: (each.get("shortNames"), each.get("categories")) for each in listed}
    assert found["streamapps"] == (["sapp"], ["all", "stream"]) or found["streamapps"] == (["sapp"], ["stream", "all"])
    assert found["streamassignments"] == (["sasg"], ["stream"])
    assert found["statebootstraps"] == (["sboot"], ["stream"])
    assert {"streamapps/status", "streamapps/scale", "statebootstraps/status"} <= found.keys()
    assert "streamassignments/status" not in found


def test_missing_fields_get_defaults(api, stream_app):
    """The API server's defaults equal the operator's."""
    given = stream_app()
    made = api.create(given)
    assert made["spec"] == given["spec"] | {
        "processingGuarantee": "exactly_once",
        "replicas": 1,
        "standbyReplicas": 0,
        "maxWarmupReplicas": 2,
        "acceptableRecoveryLag": 10_000,
        "sessionTimeout": "6s",
        "state": {
            "size": "1Gi",
            "ephemeral": False,
            "retentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Delete"},
        },
        "resources": {},
        "pod": {"terminationGracePeriodSeconds": 60},
        "rollout": {"strategy": "Rolling", "progressDeadline": "5m", "minReady": "10s", "autoRollback": True},
        "suspended": False,
        "deletion": {"kafka": "Retain"},
    }
    assert parse(made).spec == parse(given).spec


def test_snapshots_get_the_defaults_of_the_operator(api, stream_app, state_bootstrap):
    """Those of a StateBootstrap, and of `spec.bootstrap` of a StreamApp."""
    given = state_bootstrap()
    made = api.create(given)
    assert parse_bootstrap(made).spec == parse_bootstrap(given).spec
    assert made["spec"]["spark"]["mode"] == "Pod"
    given = stream_app({"bootstrap": {"location": "s3://a-b/c", "schedule": "@", "spark": {"image": "a"}}})
    assert parse(api.create(given)).spec == parse(given).spec


def test_defaults_reach_into_objects_that_are_given_in_part(api, stream_app):
    """If one field of an object is given, the others get their defaults."""
    parts = {
        "state": {"storageClassName": "fast"},
        "rollout": {"autoRollback": False},
        "pod": {"topologySpreadConstraints": [{"topologyKey": "topology.kubernetes.io/zone"}]},
    }
    given = stream_app(parts)
    made = api.create(given)
    assert made["spec"]["state"]["size"] == "1Gi"
    assert made["spec"]["rollout"]["strategy"] == "Rolling"
    assert made["spec"]["pod"]["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert parse(made).spec == parse(given).spec


def test_unknown_fields_are_pruned(api, stream_app):
    """A misspelled field is removed, and strict clients get an error."""
    made = api.create(stream_app({"standByReplicas": 2, "kafka/brokers": "x", ".status": {"phase": "Running"}}))
    assert "standByReplicas" not in made["spec"]
    assert made["spec"]["kafka"] == {"bootstrapServers": "kafka:9092"}
    assert "status" not in made
    with pytest.raises(ApiFailure, match="standByReplicas"):
        path = f"/apis/millpond.dev/v1alpha1/namespaces/{made['metadata']['namespace']}/streamapps"
        api.request("POST", path, stream_app({"standByReplicas": 2, ".metadata/name": "b"}), fieldValidation="Strict")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", None),
        ("image", ""),
        ("topology", None),
        ("kafka", None),
        ("kafka/bootstrapServers", None),
        ("imagePullPolicy", "Sometimes"),
        ("processingGuarantee", "exactly_twice"),
        ("replicas", -1),
        ("replicas", 1001),
        ("standbyReplicas", 11),
        ("maxWarmupReplicas", -1),
        ("maxWarmupReplicas", 2**31),
        ("acceptableRecoveryLag", -1),
        ("applicationId", "a" * 201),
        ("state/size", True),
        ("state/retentionPolicy", {"whenDeleted": "Keep"}),
        ("pod/terminationGracePeriodSeconds", 14),
        ("rollout/strategy", "BlueGreen"),
        ("deletion/kafka", "Purge"),
        ("config", {"a": 1}),
        ("env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    ],
)
def test_values_out_of_range_are_refused(field, value, api, stream_app):
    """Bounds, enumerations, required fields and unique names are in the schema."""
    with pytest.raises(ApiFailure) as caught:
        api.create(stream_app({field: value}))
    assert caught.value.status == 422
    assert field.split("/")[-1] in caught.value.message


def test_scale_reads_and_writes_the_number_of_workers(api, stream_app, namespace):
    """Autoscalers and kubectl scale use the scale subresource; it has the selector of the workers' pods."""
    api.create(stream_app())
    api.scale("StreamApp", namespace, "delays", 5)
    there = api.get("StreamApp", namespace, "delays")
    assert (there["spec"]["replicas"], there["metadata"]["generation"]) == (5, 2)
    status = {"replicas": 3, "selector": "app.kubernetes.io/instance=delays"}
    api.apply(stream_app({"image": None, "topology": None, "kafka": None}) | {"status": status}, subresource="status")
    path = f"/apis/millpond.dev/v1alpha1/namespaces/{namespace}/streamapps/delays/scale"
    scale = api.request("GET", path)
    assert (scale["spec"], scale["status"]) == ({"replicas": 5}, status)


def test_the_status_is_a_subresource(api, stream_app):
    """Writing the status changes neither specification nor generation, and vice versa."""
    made = api.create(stream_app())
    status = {
        "observedGeneration": 1,
        "leaderEpoch": 4,
        "phase": "RollingOut",
        "replicas": 2,
        "readyReplicas": 1,
        "workers": "1/2",
        "tasks": "11/12",
        "image": "delays:3",
        "currentRevision": "0123456789",
        "targetRevision": "abcdef0123",
        "failed": {"revision": "f", "strategy": "Rolling", "reason": "ImagePullBackOff", "message": "No such image."},
        "rollout": {
            "revision": "abcdef0123",
            "strategy": "Rolling",
            "from": "0123456789",
            "startedAt": "2026-01-01T00:00:00Z",
            "worker": "delays-1",
            "workerSince": "2026-01-01T00:00:00Z",
            "restarting": True,
            "stopped": True,
        },
        "scaling": {"to": 1, "since": "2026-01-01T00:00:00Z"},
        "conditions": [condition("Ready", "False"), condition("Progressing", "True")],
    }
    written = api.replace(made | {"status": status, "spec": made["spec"] | {"replicas": 7}}, subresource="status")
    assert written["status"] == status
    assert (written["spec"]["replicas"], written["metadata"]["generation"]) == (1, 1)
    changed = api.replace(written | {"status": {}, "spec": written["spec"] | {"replicas": 7}})
    assert changed["status"] == status
    assert changed["metadata"]["generation"] == 2


def test_printed_columns_show_the_application(api, stream_app, namespace):
    """What kubectl get prints."""
    status = {
        "phase": "Running",
        "workers": "2/2",
        "tasks": "12/12",
        "conditions": [condition("Progressing", "False"), condition("Ready", "True")],
    }
    api.replace(api.create(stream_app()) | {"status": status}, subresource="status")
    table = table_of(api, f"/apis/millpond.dev/v1alpha1/namespaces/{namespace}/streamapps")
    assert [each["name"] for each in table["columnDefinitions"] if not each["priority"]] == [
        "Name", "Ready", "Workers", "Tasks", "Phase", "Age",
    ]  # fmt: skip
    assert table["rows"][0]["cells"][:5] == ["delays", "True", "2/2", "12/12", "Running"]


def test_number_of_another_autoscaler_is_known_by_its_field_manager(api, stream_app, namespace):
    """A HorizontalPodAutoscaler updates the scale subresource; kubectl scale to another number takes it over."""
    api.create(stream_app({"autoscaling": {"maxReplicas": 9}}))
    path = f"/apis/millpond.dev/v1alpha1/namespaces/{namespace}/streamapps/delays/scale"
    scale = api.request("GET", path)
    scale["spec"]["replicas"] = 4
    api.request("PUT", f"{path}?fieldManager=kube-controller-manager", scale)
    found = parse(api.get("StreamApp", namespace, "delays"))
    assert (found.scaled_by, found.written_replicas) == ("kube-controller-manager", 4)
    api.scale("StreamApp", namespace, "delays", 5)
    found = parse(api.get("StreamApp", namespace, "delays"))
    assert (found.scaled_by, found.written_replicas) == ("", 5)
