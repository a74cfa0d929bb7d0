"""A StreamApp with load scales out, comes to rest, and scales in, without stopping tasks for longer than any move."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.nodes.records import Records
from tests.cluster.waiting import sleep, wait_for
from tests.operating.stage import App, Stage
from tests.simulation.world import simulated_world

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
    app, records = _loaded(stage, 1.2)
    _await(app, currentReplicas=2, reason="Steady")
    app.streams.pauses.clear()
    records.arrive(_rate(2.6))
    _await(app, currentReplicas=4)
    app.runs(workers=4)
    _await(app, currentReplicas=4, reason="Steady")
    wait_for(lambda: records.lag() < _rate(2.6) * 5, "lag is worked off", _HOUR)
    assert "ScaledOut" in _reasons(stage, app)
    records.arrive(_rate(1.2))
    _await(app, currentReplicas=2)
    app.runs(workers=2)
    assert "ScaledIn" in _reasons(stage, app)
    assert {pause.why for pause in app.streams.pauses} <= {"released"}, "no worker was stopped with tasks"
    assert max(pause.seconds for pause in app.streams.pauses) < _PAUSE_S
    assert app.find()["spec"]["replicas"] == 2, "the specification is its user's"
    assert _autoscaling(app)["rescalesToday"] == 2
