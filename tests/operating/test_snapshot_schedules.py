"""Snapshots by schedule or by changelog growth, on virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from millpond_operator.controllers.snapshots import due as snapshot_schedules
from tests.cluster.api import Object
from tests.cluster.nodes.images import Image
from tests.cluster.nodes.workers import END
from tests.cluster.waiting import sleep, wait_for
from tests.operating.scene import BASE, Scene, merged, scene_of
from tests.operating.stage import Stage
from tests.operating.test_crash_at_every_write import SETTINGS
from tests.operating.world import World

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

BOOTSTRAP: Object = {"location": "s3://states/delays", "spark": {"image": "spark:1"}}


@pytest.fixture
def simulated(request: pytest.FixtureRequest) -> Iterator[World]:
    """A simulation, since hours pass here."""
    from tests.simulation.world import simulated_world

    with simulated_world(request.config.getoption("--seed", default=None)) as made:
        yield made


@pytest.fixture
def scene(simulated: World, tmp_path) -> Iterator[Scene]:
    with scene_of(simulated, tmp_path, "schedules") as made:
        made.kubelets.images["spark:1"] = Image()
        made.kubelets.images["spark:wrong"] = Image(crash=("SnapshotError", "the bucket does not exist: create it."))
        yield made


def app(scene: Scene, **bootstrap: Any) -> None:
    scene.apply("delays", merged(BASE, {"bootstrap": merged(BOOTSTRAP, bootstrap)}))


def names(scene: Scene) -> list[str]:
    return sorted(each["metadata"]["name"] for each in scene.api.list("StateBootstrap", scene.namespace))


def minutes(names: list[str]) -> list[int]:
    return [int(name.rpartition("-")[2]) for name in names]


def test_schedule_makes_one_for_each_time_it_is_due(scene: Scene) -> None:
    """The status says when the next one is due; they are deleted with the StreamApp."""
    app(scene, schedule="*/2 * * * *", keep=5)
    scene.await_settled("delays")
    sleep(7 * 60)
    found = names(scene)
    assert 3 <= len(found) <= 5
    assert all(minute % 2 == 0 for minute in minutes(found))
    assert len(set(minutes(found))) == len(found)
    made = scene.get("StateBootstrap", found[0])
    assert made["status"]["phase"] == "Succeeded"
    assert made["spec"] == made["spec"] | {"streamApp": "delays", "location": "s3://states/delays", "keep": 5}
    told = scene.status("delays")["bootstrap"]
    assert told["newest"] >= found[-1]
    assert datetime.fromisoformat(told["next"]) > datetime.fromisoformat(told["since"])
    scene.delete("StreamApp", "delays")
    scene.eventually(lambda: not names(scene), lambda: f"they go: {names(scene)}")


def test_schedule_that_cannot_be_read_is_told_and_nothing_else_happens(scene: Scene) -> None:
    """The application keeps running; a corrected schedule counts from then on."""
    for wrong, words in (
        ({"schedule": "every day"}, "The schedule 'every day' is invalid (wrong number of fields)"),
        ({"schedule": "0 0 31 2 *"}, "The schedule '0 0 31 2 *' is invalid"),
        ({"schedule": "* * * * * *"}, "is invalid (wrong number of fields)"),
        ({"schedule": "0 3 * * *", "timeZone": "Europe/Nowhere"}, "The time zone 'Europe/Nowhere' does not exist"),
    ):
        app(scene, **wrong)
        scene.eventually(
            lambda words=words: words in scene.condition("delays", "SnapshotsFailing").get("message", ""),
            lambda: f"it is told: {scene.status('delays')}",
        )
        assert scene.condition("delays", "SnapshotsFailing")["reason"] == "ScheduleInvalid"
        scene.await_settled("delays")
    assert "ScheduleInvalid" in {each["reason"] for each in scene.events("delays")}
    app(scene, schedule="0 3 * * *")
    scene.eventually(lambda: not scene.condition("delays", "SnapshotsFailing"), "it is over")
    assert not names(scene)


def test_failed_snapshot_is_told_until_one_succeeds(scene: Scene) -> None:
    """The message is that of the snapshot itself."""
    app(scene, schedule="* * * * *", spark={"image": "spark:wrong"}, backoffLimit=0)
    found = scene.await_true("delays", "SnapshotsFailing", "SnapshotFailed")
    assert "the bucket does not exist: create it." in found["message"]
    app(scene, schedule="* * * * *")
    scene.eventually(
        lambda: not scene.condition("delays", "SnapshotsFailing"),
        lambda: f"it is over: {scene.status('delays')}",
        180,
    )


def test_growth_of_changelogs_makes_one(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is created when a replay would take too long. The snapshot shortens the replay, so there is no other."""
    monkeypatch.setattr(snapshot_schedules, "_REPLAY_RATE", END / 20)
    app(scene, whenReplayExceeds="30s")
    scene.await_settled("delays")
    sleep(130)
    assert not names(scene), "a replay takes 20 s"
    app(scene, whenReplayExceeds="10s")
    scene.eventually(lambda: len(names(scene)) == 1, lambda: f"one is made: {scene.status('delays')}")
    (name,) = names(scene)
    scene.eventually(
        lambda: scene.get("StateBootstrap", name).get("status", {}).get("phase") == "Succeeded", "it is made"
    )
    sleep(130)
    assert names(scene) == [name]
    assert set(scene.status("delays")["bootstrap"]["offsets"].values()) == {END}


def test_what_was_missed_is_made_up_for_once(simulated: World, tmp_path) -> None:
    """Times that were missed while the operator was away count once; times before the schedule was set do not count."""
    namespace = simulated.namespace("missed")
    with Stage(simulated, namespace, tmp_path, SETTINGS) as stage:
        stage.kubelets.images["spark:1"] = Image()
        stage.start()
        delays = stage.app("delays")
        delays.apply(bootstrap=BOOTSTRAP | {"schedule": "*/3 * * * *"})
        delays.runs()
        stage.operator.stop()
        before = len(stage.api.list("StateBootstrap", namespace))
        sleep(10 * 60)
        stage.start()

        def made() -> list[Object]:
            return stage.api.list("StateBootstrap", namespace)

        wait_for(lambda: len(made()) > before, "one is made")
        assert len(made()) == before + 1
        newest = max(made(), key=lambda each: each["metadata"]["name"])["metadata"]
        due = int(newest["name"].rpartition("-")[2]) * 60
        created = datetime.fromisoformat(newest["creationTimestamp"]).timestamp()
        assert 0 <= created - due < 180, "it is the last one that was missed"


def test_snapshot_that_is_due_when_an_operator_begins_is_followed_by_no_other(
    simulated: World, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker has reported to the new operator by then, so their offsets are not known."""
    monkeypatch.setattr(snapshot_schedules, "_REPLAY_RATE", END / 20)
    namespace = simulated.namespace("begins")
    with Stage(simulated, namespace, tmp_path, SETTINGS) as stage:
        stage.kubelets.images["spark:1"] = Image()
        stage.start()
        delays = stage.app("delays")
        delays.apply(bootstrap=BOOTSTRAP | {"schedule": "10-59/20 * * * *", "whenReplayExceeds": "10s"})
        delays.runs()

        def made() -> list[Object]:
            return stage.api.list("StateBootstrap", namespace)

        wait_for(lambda: len(made()) == 1, "the replay of all records takes 20 s")
        stage.operator.stop()
        sleep(20 * 60)
        stage.start()
        wait_for(lambda: len(made()) == 2, "one is due")
        sleep(3 * 60)
        assert len(made()) == 2, "no changelog has grown"


def test_operator_killed_after_any_write_makes_each_snapshot_once(simulated: World, tmp_path) -> None:
    """There is one Job, one pod and one result, whenever the operator is killed."""
    namespace = simulated.namespace("killed")
    with Stage(simulated, namespace, tmp_path, SETTINGS) as stage:
        stage.kubelets.images["spark:1"] = Image(snapshot_after=5)
        stage.start()
        stage.app("delays").apply()
        stage.app("delays").runs()
        for number in range(1, 40):
            name = f"crash-{number}"
            stage.proxy.forget()
            stage.crashed = False

            def about(call: Any, name: str = name) -> bool:
                return call.name == name or call.name.startswith((f"{name}-", f"{name}."))

            stage.proxy.halt_after(number, stage.crash, about)
            spec = {"streamApp": "delays", "location": "s3://states/delays", "spark": {"image": "spark:1"}}
            metadata = {"name": name, "namespace": namespace}
            stage.api.apply(
                {"apiVersion": "millpond.dev/v1alpha1", "kind": "StateBootstrap", "metadata": metadata, "spec": spec}
            )

            def found(name: str = name) -> Object:
                return stage.api.get("StateBootstrap", namespace, name).get("status", {})

            def done(name: str = name) -> bool:
                job = stage.api.find("Job", namespace, f"{name}-snapshot") or {"spec": {}}
                return found().get("phase") == "Succeeded" and "ttlSecondsAfterFinished" in job["spec"]

            wait_for(done, f"{name} is made", otherwise=found)
            pods = stage.api.list("Pod", namespace, f"millpond.dev/bootstrap={name}")
            assert len(pods) == 1
            assert found()["version"] == f"v-{pods[0]['metadata']['name']}"
            crashed = len(stage.proxy.writes(about)) >= number
            stage.proxy.resume()
            if not crashed:
                break
            wait_for(lambda: stage.crashed, "the operator is started again")
        else:
            raise AssertionError("there is no end of writes")
        assert number > 8, "the writes that matter were tried"
