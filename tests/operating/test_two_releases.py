"""Two releases of the chart that watch the same namespace by mistake."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.faultproxy import FaultProxy
from tests.cluster.waiting import sleep, wait_for
from tests.operating.operators import grant_rights
from tests.operating.stage import Stage
from tests.simulation.world import simulated_world

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture
def stage(request, tmp_path) -> Iterator[Stage]:
    with (
        simulated_world(request.config.getoption("--seed", default=None)) as world,
        Stage(world, world.namespace("first"), tmp_path) as made,
    ):
        made.start()
        yield made


def test_two_releases_that_watch_one_namespace_say_so_and_flood_nothing(stage: Stage, tmp_path) -> None:
    """An event has cause and cure; the older leader slows down, so that the two do not write at full speed."""
    app = stage.app("delays")
    app.apply()
    app.runs()
    world, other = stage.world, stage.world.namespace("second")
    grant_rights(world.api, other)
    proxy = FaultProxy(world.background, world.server.admin, world.server.authority).__enter__()
    stage.proxies.append(proxy)
    rival = world.operator(world.api, proxy.access, other, tmp_path, {}, "rival-0", watch=stage.namespace)
    stage.operators.append(rival)
    rival.start()

    def told() -> list[str]:
        events = stage.api.list("Event", stage.namespace)
        return [each["message"] for each in events if each["reason"] == "AnotherOperator"]

    wait_for(lambda: told(), "an event tells about the other operator")
    assert "set watchNamespaces of both releases" in told()[0]
    sleep(60)
    stage.proxy.forget()
    proxy.forget()
    sleep(120)
    assert len(stage.proxy.writes()) + len(proxy.writes()) < 200
    assert len(told()) == 1
    rival.kill()
    stage.operator.kill()
    stage.operator.start()
    # What the status says at first is from before.
    wait_for(
        lambda: (
            app.condition("Ready").get("status") == "True"
            and "rollout" not in app.status()
            and len(app.streams.running()) == stage.tasks
        ),
        "the one that is left serves it alone",
        300,
        otherwise=lambda: (app.status(), app.streams.running()),
    )
