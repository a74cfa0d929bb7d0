"""A StreamApp with load scales out, comes to rest, and scales in, without stopping tasks for longer than any move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.nodes.records import Records
from tests.cluster.waiting import sleep, wait_for
from tests.operating.stage import App, Stage
from tests.simulation.world import simulated_world

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

_TASKS = 12
_COST_S = 0.001
_HOUR = 3600.0
_PAUSE_S = 1.0
"""A planned move's pause here, with all that a simulated worker takes."""


@pytest.fixture
def stage(request, tmp_path) -> Iterator[Stage]:
    with (
        simulated_world(request.config.getoption("--seed", default=None)) as world,
        Stage(world, world.namespace("autoscaling"), tmp_path, tasks=_TASKS) as made,
    ):
        made.start()
        yield made
        assert not made.violations()


def _loaded(stage: Stage, workers: float, **autoscaling: Any) -> tuple[App, Records]:
    """Return a running StreamApp with two workers, and its input, which keeps so many workers busy."""
    app = stage.app("delays")
    app.streams.records = records = Records(_rate(workers), _COST_S)
    app.apply(replicas=2, autoscaling={"maxReplicas": _TASKS} | autoscaling)
    app.runs()
    return app, records


def _rate(workers: float) -> float:
    return workers / _TASKS / _COST_S


def _autoscaling(app: App) -> dict[str, Any]:
    found: dict[str, Any] = app.status().get("autoscaling", {})
    return found


def _await(app: App, seconds: float = _HOUR, **wanted: Any) -> None:
    wait_for(
        lambda: wanted.items() <= _autoscaling(app).items(),
        f"the autoscaler says {wanted}",
        seconds,
        otherwise=app.status,
    )


def _reasons(stage: Stage, app: App) -> list[str]:
    events = stage.api.list("Event", stage.namespace)
    return [each["reason"] for each in events if each["involvedObject"]["name"] == app.name]


def test_application_scales_out_and_in_with_its_load(stage) -> None:
    """In one step each, and no task pauses for longer than when it moves for another reason."""
    app, records = _loaded(stage, 1.2, stabilization="1m")
    _await(app, currentReplicas=2, reason="Steady")
    app.streams.pauses.clear()
    records.arrive(_rate(2.6))
    _await(app, currentReplicas=4)
    app.runs(workers=4)
    _await(app, currentReplicas=4, reason="Steady")
    wait_for(lambda: records.lag() < _rate(2.6) * 5, "lag is worked off", _HOUR)
    stage.proxy.forget()
    sleep(120)
    assert [call.resource for call in stage.proxy.writes() if call.name == app.name] == [], (
        "it looks, and writes nothing"
    )
    assert "ScaledOut" in _reasons(stage, app)
    records.arrive(_rate(1.2))
    _await(app, currentReplicas=2)
    app.runs(workers=2)
    assert "ScaledIn" in _reasons(stage, app)
    assert {pause.why for pause in app.streams.pauses} <= {"released"}, "no worker was stopped with tasks"
    assert max(pause.seconds for pause in app.streams.pauses) < _PAUSE_S
    assert app.find()["spec"]["replicas"] == 2, "the specification is its user's"
    assert _autoscaling(app)["rescalesToday"] == 2


def test_person_and_another_leader_find_the_number_in_the_status(stage) -> None:
    """It survives the operator and tools that apply the same specification again; a person may give a new start."""
    app, records = _loaded(stage, 2.6, mode="Recommend")
    _await(app, mode="Recommend", currentReplicas=2, recommendedReplicas=4, reason="ScaleOut")
    app.runs(workers=2)
    app.apply(autoscaling={"maxReplicas": _TASKS})
    _await(app, mode="Auto", currentReplicas=4)
    app.runs(workers=4)
    app.apply()
    stage.operator.kill()
    stage.operator.start()
    sleep(120)
    app.runs(workers=4)
    assert not [pause for pause in app.streams.pauses if pause.why != "released"]
    app.apply(replicas=6)
    app.runs(workers=6)
    app.apply(suspended=True)
    app.phase_is("Suspended")
    assert _autoscaling(app)["currentReplicas"] == 6
    app.apply(suspended=False)
    app.runs(workers=6)
    app.apply(replicas=0)
    wait_for(lambda: app.status().get("replicas") == 0, "no worker runs", otherwise=app.status)
    assert _autoscaling(app)["reason"] == "Disabled"
    records.arrive(0)


def test_limits_and_rivals_are_reported(stage) -> None:
    """Too low a maximum has a condition of its own; with another autoscaler, the StreamApp is Degraded."""
    app, _ = _loaded(stage, 6.0, maxReplicas=3)
    wait_for(
        lambda: app.condition("ScalingLimited").get("reason") == "AutoscalerAtMax",
        "the maximum is reported",
        _HOUR,
        otherwise=app.status,
    )
    assert "raise spec.autoscaling.maxReplicas" in app.condition("ScalingLimited")["message"]
    assert app.condition("Ready")["status"] == "True"
    app.runs(workers=3)
    assert "AutoscalerAtMax" in _reasons(stage, app)
    entry = {
        "manager": "kube-controller-manager",
        "operation": "Update",
        "apiVersion": "millpond.dev/v1alpha1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }
    managed = app.find()["metadata"]["managedFields"]
    stage.api.patch("StreamApp", stage.namespace, app.name, {"metadata": {"managedFields": [*managed, entry]}})
    wait_for(
        lambda: app.condition("Degraded").get("reason") == "AutoscalerConflict",
        "the other autoscaler is reported",
        otherwise=app.status,
    )
    _await(app, currentReplicas=2, reason="AutoscalerConflict")
    app.runs(workers=2)
    stage.api.patch("StreamApp", stage.namespace, app.name, {"metadata": {"managedFields": managed}})
    wait_for(lambda: app.condition("Degraded").get("status") == "False", "it acts again", otherwise=app.status)


def test_workers_for_the_standbys_stay(stage) -> None:
    """One worker would be enough for the load, and could hold no standby: the first failure would be an outage."""
    app, _ = _loaded(stage, 0.2, stabilization="1m", minReplicas=1)
    app.apply(replicas=4, standbyReplicas=1)
    _await(app, currentReplicas=2, reason="ScaleIn")
    app.runs(workers=2)
    wait_for(lambda: app.condition("StandbysCaughtUp").get("status") == "True", "standbys are caught up")
    sleep(600)
    app.runs(workers=2)
    app.apply(standbyReplicas=2)
    app.runs(workers=3)
    stage.api.patch(
        "StreamApp",
        stage.namespace,
        app.name,
        {"metadata": {"annotations": {"millpond.dev/drain": "delays-0"}}},
    )
    wait_for(
        lambda: "annotation millpond.dev/drain is set" in _autoscaling(app).get("message", ""),
        "it says why nothing is decided",
        _HOUR,
        otherwise=app.status,
    )
