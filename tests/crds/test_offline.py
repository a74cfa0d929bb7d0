"""`millpond check` finds without a cluster what the API server refuses: each rule and each mistake of a manifest."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from millpond_operator.manifests import check_manifest
from millpond_operator.manifests.definitions import definitions
from tests.crds.rules import BOOTSTRAPS, BOOTSTRAPS_OF_APPS, OBJECT, changed
from tests.mistakes.table import MANIFEST, MISTAKES, Moment

STREAM_APP = yaml.safe_load(MANIFEST)
STATE_BOOTSTRAP = {
    "apiVersion": "millpond.dev/v1alpha1",
    "kind": "StateBootstrap",
    "metadata": {"name": "nightly"},
    "spec": {"streamApp": "delays", "location": "s3://states/delays", "spark": {"image": "delays-spark:3"}},
}


def told(item: dict[str, Any]) -> list[str]:
    """What is said about an object: fields and sentences."""
    return [f"{each.field}: {each.text}" for each in check_manifest(yaml.safe_dump(item)).findings]


@pytest.mark.share(40)
@pytest.mark.parametrize(
    ("valid", "case"),
    [
        *((STREAM_APP, each) for each in (*OBJECT, *BOOTSTRAPS_OF_APPS)),
        *((STATE_BOOTSTRAP, each) for each in BOOTSTRAPS),
    ],
    ids=lambda each: getattr(each, "message", ""),
)
def test_each_rule_is_evaluated(valid: dict[str, Any], case: Any) -> None:
    """What a rule refuses is one finding, in the API server's words; the nearest right value has none."""
    [said] = told(changed(valid, case.wrong))
    named = valid is STATE_BOOTSTRAP and ".metadata/name" in case.wrong
    words = "metadata.name becomes part" if named else case.told.replace("Forbidden: ", "")
    assert (words or case.message.partition(":")[0]) in said
    assert told(changed(valid, case.right)) == []


def _changed(given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    found = {**given}
    for name, value in changes.items():
        found[name] = _changed(found.get(name, {}), value) if isinstance(value, dict) else value
    return {name: value for name, value in found.items() if value is not None}


@pytest.mark.parametrize(
    "mistake", [each for each in MISTAKES if each.moment is Moment.APPLY], ids=lambda each: each.title.replace(" ", "-")
)
def test_what_kubectl_would_be_answered_is_said_before(mistake: Any) -> None:
    """The mistakes of manifests that docs/errors.md has."""
    [said] = told(_changed(STREAM_APP, yaml.safe_load(mistake.manifest)))
    assert mistake.says.removeprefix("strict decoding error: ").replace("Forbidden: ", "").rstrip(".") in said


FAULTY = """\
# Two objects, and one of another kind.
apiVersion: v1
kind: Secret
metadata: {name: x}
---
apiVersion: millpond.dev/v1alpha1
kind: StreamApp
metadata:
  name: shop
  labels:
    team: 7
spec:
  image: registry.example.com/shop:1
  topology: app:build
  replica: 3
  kafka:
    bootstrapServer: kafka:9092
    tls:
      enabled: true
  pod:
    mounts:
      - {name: a, path: /etc/a, secret: a}
      - name: b
        path: /etc/b
        secrte: b
"""


def test_each_fault_has_its_line_and_the_nearest_name() -> None:
    """Unknown fields at any depth, a missing one at the field above it, and a label that is no text."""
    checked = check_manifest(FAULTY)
    assert [(each.line, each.field) for each in checked.findings] == [
        (11, "metadata.labels.team"),
        (15, "spec.replica"),
        (16, "spec.kafka.bootstrapServers"),
        (17, "spec.kafka.bootstrapServer"),
        (18, "spec.kafka.tls"),
        (25, "spec.pod.mounts[1].secrte"),
    ]
    said = {each.field: each.text for each in checked.findings}
    assert said["spec.replica"] == "unknown field \"spec.replica\"; did you mean 'replicas'?"
    assert said["spec.kafka.bootstrapServer"].endswith("did you mean 'bootstrapServers'?")
    assert said["spec.pod.mounts[1].secrte"].endswith("did you mean 'secret'?")
    assert said["spec.kafka.bootstrapServers"] == "Required value."
    assert "put it into quotes" in said["metadata.labels.team"]
    assert (checked.others, checked.objects, checked.applications) == (1, [], [])


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("kind: [", 1, "this is not YAML"),
        ("a: 1\nb: {\n", 3, "this is not YAML"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "the key 'c' stands here a second time"),
        ("image: x\n", 1, "this is no Kubernetes object"),
        ("- x\n", 1, "this is no Kubernetes object"),
        (
            "kind: StreamApp\nmetadata: {name: a}\n",
            1,
            "apiVersion is missing: write apiVersion: millpond.dev/v1alpha1.",
        ),
        (
            "kind: StreamApp\napiVersion: millpond.dev/v1\n",
            2,
            "apiVersion is 'millpond.dev/v1': write apiVersion: mill",
        ),
        ("kind: StreamAp\napiVersion: millpond.dev/v1alpha1\n", 1, "did you mean 'StreamApp'?"),
        ("apiVersion: millpond.dev/v1alpha1\nkind: StreamApp\nspec: 1\n", 1, "metadata is missing"),
    ],
)
def test_what_is_no_object_is_one_finding(text: str, line: int, said: str) -> None:
    found = check_manifest(text).findings[0]
    assert (found.line, said in found.text) == (line, True), found


@pytest.mark.slow
def test_what_only_the_operator_refuses_is_found_by_its_code() -> None:
    """An environment that is too large for a process: the schema accepts it."""
    large = [{"name": f"TEXT_{number}", "value": "\N{DROPLET}" * 8000} for number in range(40)]
    [said] = told({**STREAM_APP, "spec": {**STREAM_APP["spec"], "env": large}})
    assert "has an environment that is too large for a process: TEXT_" in said


def test_without_the_library_of_rules_it_says_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types, names and bounds are still checked."""
    monkeypatch.setattr("millpond_operator.manifests.checking.evaluates_rules", lambda: False)
    wrong = {**STREAM_APP, "spec": {**STREAM_APP["spec"], "topology": "app.py"}}
    checked = check_manifest(yaml.safe_dump(wrong))
    assert checked.findings == []
    assert checked.unchecked_rules > 5
    assert told({**STREAM_APP, "spec": {**STREAM_APP["spec"], "replicas": "2"}})


def test_the_definitions_are_those_of_crds() -> None:
    assert definitions().keys() == {"StreamApp", "StateBootstrap", "StreamAssignment"}
