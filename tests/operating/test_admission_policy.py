"""The chart's admission policy refuses nothing that the operator does in the life of an application."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart.rendering import Rendering
from tests.chart.test_admission_policy import policies
from tests.cluster.waiting import wait_for
from tests.operating.stage import Stage
from tests.operating.test_rights import makes_snapshots, rolls_back_and_forth_over_a_restart
from tests.support.programs.helm import HELM_4


@pytest.fixture
def stage(real_world, helm, tmp_path) -> Iterator[Stage]:
    namespace = real_world.namespace("policy")
    made = policies(Rendering(helm[HELM_4]), namespace)
    for each in made:
        real_world.api.apply(each)
    try:
        with Stage(real_world, namespace, tmp_path) as stage:
            yield stage
    finally:
        for each in made:
            real_world.api.delete(each["kind"], None, each["metadata"]["name"])
        real_world.api.delete("Namespace", None, namespace)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_policy_refuses_nothing_that_the_operator_does(stage: Stage) -> None:
    """An application is created, upgraded, repaired, has a snapshot with executors, and is deleted with its topics."""
    stage.start()
    app = stage.app("delays")
    app.apply(deletion={"kafka": "Delete"})
    app.runs()
    rolls_back_and_forth_over_a_restart(stage, app)
    stage.api.patch("Service", stage.namespace, "delays", {"metadata": {"labels": {"app.kubernetes.io/name": "other"}}})
    wait_for(
        lambda: (
            stage.api.get("Service", stage.namespace, "delays")["metadata"]["labels"]["app.kubernetes.io/name"]
            == "millpond"
        ),
        "a change of somebody else is undone",
    )
    makes_snapshots(stage, app)
    app.delete()
    wait_for(lambda: app.find() is None, "it is gone", otherwise=app.find)
    assert "ValidatingAdmissionPolicy" not in stage.operator.log.read_text()
