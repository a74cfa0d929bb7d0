"""After an upgrade of the operator that changes pods, all StreamApps restart, at most the budget at a time."""

from __future__ import annotations

from typing import Any

import pytest

from millpond_operator.resources import pods
from tests.cluster.waiting import wait_for
from tests.operating.scene import condition_in
from tests.operating.stage import App, Stage
from tests.simulation.world import simulated_world

pytestmark = pytest.mark.slow

#: Fifty with --soak.
_APPS, _MOST_APPS = 12, 50
#: Many that have several workers would only take longer to simulate.
_OF_TWO = 6
_PATIENCE_S = 3600.0


@pytest.fixture
def stage(request, tmp_path):
    with (
        simulated_world(request.config.getoption("--seed", default=None)) as world,
        Stage(world, world.namespace("upgrades"), tmp_path, {"UPGRADE_BUDGET": "2"}, tasks=2) as made,
    ):
        made.start()
        yield made
        assert not made.violations()


def _restart_as_another_version(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Render pods differently from now on."""
    stage.operator.stop()
    stage.proxy.forget()
    monkeypatch.setattr(pods, "_TOKEN_SECONDS", pods._TOKEN_SECONDS + 600)
    stage.operator.start()


def _in_flux(stage: Stage) -> tuple[int, list[str]]:
    """Return the most StreamApps that restarted at a time by their statuses, and those restarted without one."""
    restarting: set[str] = set()
    most, unannounced = 0, []
    for call in stage.proxy.writes():
        if call.resource == "streamapps" and call.subresource == "status":
            rollout: dict[str, Any] = call.body["status"].get("rollout") or {}
            (restarting.add if rollout.get("upgrade") else restarting.discard)(call.name)
            most = max(most, len(restarting))
        if (call.resource, call.verb) == ("pods", "delete") and call.name.rpartition("-")[0] not in restarting:
            unannounced.append(call.name)
    return most, unannounced


def _statuses(stage: Stage) -> dict[str, Any]:
    """Return the statuses of all StreamApps, by name."""
    return {app["metadata"]["name"]: app["status"] for app in stage.api.list("StreamApp", stage.namespace)}


def _revisions(app: App) -> set[str]:
    found = app.stage.api.list("Pod", app.stage.namespace, f"millpond.dev/app={app.name}")
    return {pod["metadata"]["labels"]["millpond.dev/revision"] for pod in found}


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_new_version_restarts_applications_within_its_budget(stage, monkeypatch, soak):
    """Those with the strategy Recreate restart one worker at a time as well; a change by a user does not wait."""
    count = _MOST_APPS if soak else _APPS
    apps = [stage.app(f"app-{number}") for number in range(count)]
    for number, app in enumerate(apps):
        strategy = "Recreate" if number % 2 else "Rolling"
        app.apply(rollout={"minReady": "300ms", "strategy": strategy}, replicas=2 if number < _OF_TWO else 1)
    for app in apps:
        app.runs()
    before = {app.name: app.status()["currentRevision"] for app in apps}
    _restart_as_another_version(stage, monkeypatch)

    def waiting() -> list[str]:
        return [name for name, status in _statuses(stage).items()
                if condition_in(status, "Progressing")["reason"] == "UpgradeWaits"]  # fmt: skip

    wait_for(lambda: len(waiting()) > count // 2, "most of them wait", poll_s=1.0)
    changed = next(app for app in apps if app.name == waiting()[-1])
    changed.apply(image="delays:2")
    changed.runs()
    assert len(waiting()) > count // 2 - 5

    def left() -> list[str]:
        return [name for name, status in _statuses(stage).items() if status["currentRevision"] == before[name]]

    wait_for(lambda: not left(), "all are restarted", _PATIENCE_S, left, poll_s=5.0)
    wait_for(
        lambda: all(condition_in(each, "Ready")["status"] == "True" for each in _statuses(stage).values()), "all run"
    )
    for app in apps:
        assert _revisions(app) == {app.status()["currentRevision"]}
    most, unannounced = _in_flux(stage)
    assert most == 2
    assert {name.rpartition("-")[0] for name in unannounced} <= {changed.name}
    stopped = [
        call for call in stage.proxy.writes() if call.resource == "statefulsets" and call.body["spec"]["replicas"] == 0
    ]
    assert {call.name for call in stopped} <= {changed.name}


def test_a_leader_that_is_killed_exceeds_no_budget(stage, monkeypatch):
    """The next leader finds the restarts in progress in the statuses."""
    apps = [stage.app(f"app-{number}") for number in range(5)]
    for app in apps:
        app.apply()
    for app in apps:
        app.runs()
    before = {app.name: app.status()["currentRevision"] for app in apps}
    _restart_as_another_version(stage, monkeypatch)
    wait_for(lambda: any(app.status().get("rollout") for app in apps), "a restart is under way", poll_s=0.05)
    stage.operator.kill()
    stage.api.delete("Lease", stage.namespace, "millpond-operator")
    stage.operator.start()
    wait_for(lambda: all(app.status().get("currentRevision", before[app.name]) != before[app.name] for app in apps),
             "all are restarted", _PATIENCE_S)  # fmt: skip
    assert _in_flux(stage)[0] <= 2
