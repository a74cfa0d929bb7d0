"""Every failed pass is reported in a condition of the StreamApp, not only in the log."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.protocol import clock
from millpond_operator.controllers.reconcile import reconciler
from tests.cluster.api import ApiFailure, Object
from tests.cluster.faultproxy import on
from tests.cluster.nodes.images import Image, topology
from tests.cluster.waiting import sleep, wait_for
from tests.operating.scene import BASE, condition_in, merged
from tests.operating.stage import Stage
from tests.resources.examples import specs
from tests.simulation.world import simulated_world
from tests.support import generated

pytestmark = pytest.mark.slow

_CRD = Path(__file__).parents[2] / "crds" / "streamapps.yaml"


@pytest.fixture
def stage(request, tmp_path):
    with (
        simulated_world(request.config.getoption("--seed", default=None)) as world,
        Stage(world, world.namespace("failures"), tmp_path, {"RESYNC_INTERVAL": "60s"}) as made,
    ):
        made.start()
        yield made


def _apply(stage: Stage, name: str, spec: Object) -> None:
    stage.api.apply(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StreamApp",
            "metadata": {"name": name, "namespace": stage.namespace},
            "spec": spec,
        }
    )


def _degraded(stage: Stage, name: str, reason: str) -> str:
    """Wait until it is Degraded with this reason; return the message."""

    def status() -> Object:
        return (stage.api.find("StreamApp", stage.namespace, name) or {}).get("status", {})

    def holds() -> bool:
        found = condition_in(status(), "Degraded")
        return (found.get("status"), found.get("reason")) == ("True", reason)

    wait_for(holds, f"{name} is degraded: {reason}", otherwise=lambda: f"{status()}\n{stage.operator.tail()}")
    for type, value in (("Ready", "False"), ("Stalled", "True")):
        assert condition_in(status(), type)["status"] == value
    return str(condition_in(status(), "Degraded")["message"])


def _status_writes(stage: Stage, name: str) -> list[float]:
    return [call.at for call in stage.proxy.writes() if (call.name, call.subresource) == (name, "status")]


def test_a_specification_that_cannot_be_read_is_a_condition(stage):
    """A CRD of another version without rules is installed. Correcting the specification is enough."""
    definition = yaml.safe_load(_CRD.read_text())
    (version,) = definition["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec.pop("x-kubernetes-validations")
    spec["properties"]["commitInterval"].pop("x-kubernetes-validations")
    stage.api.apply(definition)
    app = stage.app("unread")
    app.apply(commitInterval="999999999999999h")
    message = _degraded(stage, "unread", "SpecificationInvalid")
    assert "'999999999999999h' is longer than any duration can be" in message
    assert "install the CRDs" in message
    app.apply(commitInterval="1s")
    app.runs()


def test_an_environment_that_no_process_can_have_is_a_condition(stage):
    """Characters that JSON escapes with six characters exceed what the CRD's rule counts."""
    app = stage.app("large")
    app.apply(config={f"app.{letter}": "\x01" * 8000 for letter in "abc"})
    message = _degraded(stage, "large", "SpecificationInvalid")
    assert "MILLPOND_CONFIG_INLINE has 144" in message
    assert "Put long values of spec.config and spec.env into a ConfigMap" in message
    app.apply(config={"app.a": "1"})
    app.runs()


def test_an_error_that_nobody_foresaw_is_a_condition(stage, monkeypatch):
    """The condition is written once while the operator retries, and ends with the first successful pass."""
    broken = True
    real = reconciler.pod_template

    def pod_template(app: Any, *rest: Any) -> Object:
        if broken and app.name == "broken":
            raise ZeroDivisionError("division by zero")
        return real(app, *rest)

    monkeypatch.setattr(reconciler, "pod_template", pod_template)
    app, other = stage.app("broken"), stage.app("other")
    app.apply()
    other.apply()
    assert "ZeroDivisionError: division by zero. The operator cannot reconcile" in _degraded(
        stage, "broken", "ReconcileFailed"
    )
    other.runs()
    began = clock.monotonic()
    wait_for(lambda: stage.operator.tail(1000).count("ZeroDivisionError: division") > 5, "it is tried again")
    assert not [at for at in _status_writes(stage, "broken") if at > began]
    broken = False
    app.runs()
    assert app.condition("Degraded")["status"] == "False"


def test_an_api_server_that_fails_for_long_is_a_condition(stage):
    """A short failure is not reported."""
    app = stage.app("unlucky")
    stage.proxy.answer(500, times=2, match=on("services", "patch"))
    app.apply()
    app.runs()
    stage.proxy.answer(500, times=None, match=on("services", "patch"))
    before = stage.api.get("StreamApp", stage.namespace, "unlucky")["status"]
    stage.api.delete("Service", stage.namespace, "unlucky")
    assert condition_in(before, "Degraded")["status"] == "False"
    assert "The operator cannot reconcile" in _degraded(stage, "unlucky", "ReconcileFailed")
    told = {each["reason"] for each in stage.api.list("Event", stage.namespace) if each["type"] == "Warning"}
    assert told == {"ReconcileFailed"}
    stage.proxy.mend()
    app.runs()
    assert app.condition("Degraded")["status"] == "False"


def test_tasks_move_on_though_another_has_a_name(stage):
    """A foreign object with a name of the application only keeps a new leader from changing objects."""
    app = stage.app("served")
    app.apply(sessionTimeout="1s", rollout={"minReady": "0s"})
    app.runs()
    budget = stage.api.get("PodDisruptionBudget", stage.namespace, "served")
    stage.operator.freeze()
    stage.api.delete("PodDisruptionBudget", stage.namespace, "served")
    foreign = {"name": "served", "namespace": stage.namespace}
    stage.api.create({key: budget[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": foreign})
    stage.operator.thaw()
    stage.world.background.call(stage.crash())
    _degraded(stage, "served", "NameTaken")
    lost = {task for task, worker in app.streams.running().items() if worker == "served-1"}
    stage.kubelets.freeze(stage.namespace, "served-1")
    try:
        wait_for(
            lambda: lost and {app.streams.owners[task] for task in lost} == {"served-0"},
            "tasks of a lost worker are taken over",
            otherwise=app.status,
        )
    finally:
        stage.kubelets.thaw(stage.namespace, "served-1")
    stage.api.delete("PodDisruptionBudget", stage.namespace, "served")
    app.runs()


@pytest.mark.parametrize("reason", ["Unschedulable", "BrokerUnreachable", "CredentialsChanged"])
def test_a_new_leader_does_not_take_back_what_was_told(stage, reason):
    """A lasting problem stays reported until the workers have reported, without a new event."""
    app = stage.app("lasting")
    type = "CredentialsOutdated" if reason == "CredentialsChanged" else "Degraded"
    if reason == "Unschedulable":
        app.apply(pod={"nodeSelector": {"disk": "fast"}})
    elif reason == "BrokerUnreachable":
        stage.kubelets.images["delays:1"] = Image(topology(stage.tasks), trouble=("BrokerError", "No broker answers."))
        app.apply()
    else:
        app.apply()
        app.runs()
        for worker in stage.kubelets.workers(stage.namespace).values():
            worker.credentials_changed = True
    wait_for(lambda: app.condition(type).get("reason") == reason, "it is told", otherwise=app.status)
    app.rest()
    before = app.condition(type)
    began = clock.monotonic()
    stage.world.background.call(stage.crash())
    stage.operator.await_reconciling()
    sleep(30)
    writes = [call for call in stage.proxy.writes() if (call.name, call.subresource) == ("lasting", "status")]
    told = [condition_in(call.body["status"], type) for call in writes if call.at > began]
    assert {each.get("status") for each in told} <= {"True"}
    assert app.condition(type) == before
    events = [each for each in stage.api.list("Event", stage.namespace) if each["reason"] == reason]
    assert [each.get("count", 1) for each in events] == [1]


_paths = ("/app", "/usr", "//", "/etc/../", "/data", "/data/a", "/app/data", "/lib64/x")
_mounts = st.sampled_from(
    [{"name": f"m{number}", "path": path, "configMap": "c"} for number, path in enumerate(_paths)]
)
#: What people might write where something else is meant, beside what is right.
_odd = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["delays:1", ":::", "delays@sha256:1f", "a//b", "Delays", "x" * 900]),
        "commitInterval": st.sampled_from(["0s", "1ms", "10s", "999999999999999h", "999999h", "00000001s"]),
        "sessionTimeout": st.sampled_from(["300ms", "1s", "10m", "999999999999999h"]),
        "maxWarmupReplicas": st.sampled_from([0, 1, 2**31 - 1, -1]),
        "config": st.dictionaries(
            st.sampled_from(["transaction.timeout.ms", "app.a", "app.b", "app.c"]),
            st.sampled_from(["1", "1h", "\x01" * 8000, "é" * 4000, "$(A)", "999999999"]),
        ),
        "state": st.fixed_dictionaries({"size": st.sampled_from([1, "64Mi", "1E", "9999999E", "1e-3", "20Gi"])}),
        "rollout": st.fixed_dictionaries(
            {},
            optional={
                "minReady": st.sampled_from(["0s", "999999999999999h", "24h"]),
                "progressDeadline": st.sampled_from(["10s", "168h", "999999999999999h"]),
            },
        ),
        "pod": st.fixed_dictionaries(
            {},
            optional={
                "mounts": st.lists(_mounts, max_size=2, unique_by=lambda each: each["name"]),
                "terminationGracePeriodSeconds": st.sampled_from([15, 3600]),
            },
        ),
    },
)


@pytest.mark.timeout(600)
def test_whatever_the_definition_accepts_ends_in_conditions(stage):
    """The status observes each generated specification, valid or odd, and has conditions for it."""
    accepted: list[str] = []

    @settings(max_examples=generated.examples(100), suppress_health_check=list(HealthCheck), deadline=None)
    @given(specs, _odd)
    def apply(spec: Object, odd: Object) -> None:
        name = f"app-{len(accepted)}"
        try:
            _apply(stage, name, merged(merged(copy.deepcopy(BASE), spec), odd) | {"replicas": 1})
        except ApiFailure as failure:
            assert failure.status == 422, failure
        else:
            accepted.append(name)

    apply()
    print(len(accepted), "accepted")
    assert accepted

    def unsaid() -> list[tuple[str, Object]]:
        found = []
        for name in accepted:
            app = stage.api.get("StreamApp", stage.namespace, name)
            status = app.get("status", {})
            true = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
            observed = status.get("observedGeneration") == app["metadata"]["generation"]
            if not (observed and true & {"Ready", "Degraded", "Progressing"}):
                found.append((name, status))
        return found

    wait_for(
        lambda: not unsaid(),
        "each has a status that says how it is",
        otherwise=lambda: f"{unsaid()[:3]}\n{stage.operator.tail()}",
    )
    log = stage.operator.tail(1_000_000)
    assert "failed unexpectedly" not in log, log[log.index("failed unexpectedly") :][:4000]
