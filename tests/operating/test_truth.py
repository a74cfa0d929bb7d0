"""Conditions, phases, images and events of an application are true, and so is what the operator reports of itself."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from millpond.protocol import clock
from tests.cluster.calls import Call
from tests.cluster.installing import manifests
from tests.cluster.nodes.images import Image, topology
from tests.cluster.waiting import sleep
from tests.operating.operators import ROOT
from tests.operating.scene import BASE, TASKS, Scene, condition_in, merged, scene_of
from tests.operating.stage import Stage

TWO = merged(BASE, {"replicas": 2})

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "truth") as made:
        yield made


def _statuses(scene: Scene, name: str) -> list[tuple[float, dict]]:
    """Return all statuses that were written for an application, with their times."""

    def writes(call: Call) -> bool:
        return call.resource == "streamapps" and call.name == name and call.subresource == "status"

    return [(call.at, call.body["status"]) for call in scene.proxy.writes(writes) if call.status == 200]


def _since(scene: Scene, name: str, began: float) -> list[dict]:
    return [status for at, status in _statuses(scene, name) if at >= began]


def _reasons(scene: Scene, name: str) -> list[str]:
    return [event["reason"] for event in scene.events(name)]


def _set_env(scene: Scene, name: str) -> None:
    """Change the StatefulSet as `kubectl set env statefulset/NAME DEBUG=1` does."""
    containers = [{"name": "worker", "env": [{"name": "DEBUG", "value": "1"}]}]
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/{name}?fieldManager=kubectl-set"
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    scene.api.request("PATCH", path, patch, content="application/strategic-merge-patch+json")


def _debugs(pod: dict) -> bool:
    return "DEBUG" in {each["name"] for each in pod["spec"]["containers"][0]["env"]}


def test_a_worker_of_a_changed_template_is_rolled(scene: Scene) -> None:
    """A worker that started with a variable added while the operator was away is restarted; the other is not."""
    scene.apply("drifted", TWO)
    scene.await_settled("drifted")
    before = scene.uids("Pod", "drifted")
    scene.operator.freeze()
    try:
        _set_env(scene, "drifted")
        scene.delete("Pod", "drifted-1")
        scene.eventually(
            lambda: _debugs(scene.pods("drifted").get("drifted-1", scene.pods("drifted")["drifted-0"])), "it starts"
        )
    finally:
        scene.operator.thaw()
    scene.eventually(
        lambda: not any(map(_debugs, [*scene.pods("drifted").values(), _as_pod(scene, "drifted")])), "nobody has it"
    )
    scene.await_settled("drifted")
    assert scene.uids("Pod", "drifted")["drifted-0"] == before["drifted-0"]
    assert "ChangeUndone" in _reasons(scene, "drifted")
    pods = scene.uids("Pod", "drifted")
    sleep(30)
    assert scene.uids("Pod", "drifted") == pods


def _as_pod(scene: Scene, name: str) -> dict:
    return scene.get("StatefulSet", name)["spec"]["template"]


def test_applications_are_served_again_when_definitions_are_back(world, tmp_path) -> None:
    """Without the definitions the leader is not ready; with them it continues within seconds."""
    with Stage(world, world.namespace("defined"), tmp_path, tasks=TASKS) as stage:
        stage.start()
        _delete_and_define(Scene(stage.api, stage.namespace, stage.kubelets, stage.operator, stage.proxy))
        assert stage.operator.alive
        assert stage.operator.starts == 1


def _delete_and_define(scene: Scene) -> None:
    scene.apply("first", TWO)
    scene.await_settled("first")
    definitions = [each for each in manifests(ROOT / "crds") if each["kind"] == "CustomResourceDefinition"]
    for each in definitions:
        scene.api.delete("CustomResourceDefinition", None, each["metadata"]["name"])
    scene.eventually(lambda: not _is_ready(scene), "the operator is not ready", 20)
    scene.eventually(lambda: not scene.of_app("Pod", "first"), "its workers went with it")
    for each in definitions:
        scene.api.apply(copy.deepcopy(each))
    scene.eventually(lambda: _is_ready(scene), "the operator is ready", 10)
    scene.apply("second", TWO)
    scene.await_settled("second", 30)


def _is_ready(scene: Scene) -> bool:
    try:
        scene.operator.fetch("/readyz")
    except OSError:
        return False
    return True


def test_a_silent_worker_is_told_from_the_session_timeout_on(scene: Scene) -> None:
    """Its pod still counts as ready; events report the loss, the take-over of its tasks and its return."""
    spec = merged(BASE, {"replicas": 3, "sessionTimeout": "2s"})
    scene.apply("silent", spec)
    scene.await_settled("silent")
    sleep(15)  # the coordinator has heard of everybody
    began = clock.monotonic()
    scene.kubelets.freeze(scene.namespace, "silent-1")
    try:
        scene.eventually(lambda: scene.condition("silent", "Ready")["status"] == "False", "it is not ready", 5)
        assert scene.condition("silent", "Ready")["message"] == "2 of 3 workers are ready."
        message = scene.await_true("silent", "Degraded", "WorkerSilent")["message"]
        assert clock.monotonic() - began < 10
        assert "Worker silent-1 has sent no heartbeat for longer than spec.sessionTimeout (2s)" in message
        assert scene.kubelets.node_of(scene.namespace, "silent-1") in message
        assert scene.condition("silent", "Progressing")["reason"] == "Recovering"
        assert {"WorkerLost", "TasksTakenOver"} <= set(_reasons(scene, "silent"))
    finally:
        scene.kubelets.thaw(scene.namespace, "silent-1")
    scene.await_settled("silent")
    assert "WorkerBack" in _reasons(scene, "silent")
    assert scene.status("silent")["phase"] == "Running"


def test_a_deleted_pod_is_no_scaling(scene: Scene) -> None:
    """Until its successor is ready, the application is not ready and reports what it waits for."""
    scene.kubelets.images["delays:1"] = Image(topology(partitions=TASKS), starts_after=3.0)
    scene.apply("deleted", merged(BASE, {"replicas": 3}))
    scene.await_settled("deleted")
    sleep(15)
    began = clock.monotonic()
    scene.delete("Pod", "deleted-1")
    scene.eventually(lambda: scene.condition("deleted", "Ready")["status"] == "False", "it is told", 5)
    scene.await_settled("deleted")
    seen = _since(scene, "deleted", began)
    assert {status["phase"] for status in seen} == {"Running"}
    ready = [condition_in(status, "Ready")["status"] for status in seen]
    assert "".join(each[0] for each in ready).strip("T") in {"F" * ready.count("False")}, ready
    for status in seen:
        if condition_in(status, "Ready")["status"] == "False" and status["readyReplicas"] < 3:
            progressing = condition_in(status, "Progressing")
            assert (progressing["status"], progressing["reason"]) == ("True", "Recovering")
    assert {"WorkerEnded", "WorkerLost"} & set(_reasons(scene, "deleted"))


def test_an_image_that_does_not_run_is_not_shown(scene: Scene) -> None:
    """The status shows the image that workers run, not the wanted one."""
    scene.apply("shown", TWO)
    scene.await_settled("shown")
    assert scene.status("shown")["image"] == "delays:1"
    began = clock.monotonic()
    scene.apply("shown", merged(TWO, {"image": "delays:nowhere"}))
    scene.eventually(lambda: scene.status("shown").get("phase") == "Degraded", "it is rolled back")
    assert {status["image"] for status in _since(scene, "shown", began)} == {"delays:1"}
    scene.apply("shown", merged(TWO, {"image": "delays:2"}))
    scene.await_settled("shown")
    images = [status["image"] for status in _since(scene, "shown", began)]
    assert images[-1] == "delays:2"
    assert "delays:1, delays:2" in images or "delays:2, delays:1" in images


def test_a_bad_image_stays_degraded_between_failures(scene: Scene) -> None:
    """Also while no pod shows a failure: restarted containers hide how they ended for a second."""
    scene.kubelets.images["delays:crash"] = Image(
        topology(TASKS), starts_after=0.5, crash=("ApplicationError", "It cannot start."), end_hidden_for=1.0
    )
    scene.apply("one", TWO)
    scene.await_settled("one")
    began = clock.monotonic()
    scene.apply("one", merged(TWO, {"image": "delays:crash", "replicas": 3}))
    scene.await_true("one", "Degraded", "ApplicationNotImportable")
    scene.eventually(lambda: "failed" in scene.status("one"), "the revision fails")
    statuses = [condition_in(status, "Degraded").get("status") for status in _since(scene, "one", began)]
    assert "False" not in statuses[statuses.index("True") :]
    scene.apply("one", merged(TWO, {"replicas": 3}))
    scene.await_settled("one")


@pytest.mark.parametrize("seconds", [5, 30])
def test_scheduling_trouble_is_told_only_when_it_lasts(scene: Scene, seconds: int) -> None:
    """A volume that is bound at the second attempt is not reported."""
    name = f"bound-{seconds}"
    scene.apply(name, merged(BASE, {"pod": {"nodeSelector": {"disk": "fast"}}}))
    scene.eventually(lambda: bool(scene.of_app("Pod", name)), "it is made")
    sleep(seconds)
    for node in scene.kubelets.nodes.values():
        node.labels["disk"] = "fast"
    scene.await_settled(name)
    told = {condition_in(status, "Degraded").get("reason") for _, status in _statuses(scene, name)}
    assert ("Unschedulable" in told) == (seconds > 10)
    assert ("Warning" in {event["type"] for event in scene.events(name)}) == (seconds > 10)


def test_pods_that_cannot_be_created_are_told_with_the_servers_words(scene: Scene) -> None:
    """Neither a pod nor the StatefulSet shows it: a pod that a quota or a policy rejects is just missing."""
    scene.apply("refused", merged(BASE, {"replicas": 2, "pod": {"priorityClassName": "gold"}}))
    scene.await_true("refused", "Degraded", "PodNotCreated")
    message = scene.condition("refused", "Degraded")["message"]
    assert "Pod refused-0 cannot be created" in message
    assert "no PriorityClass with name gold was found. Correct spec.pod.priorityClassName" in message
    assert not scene.pods("refused")
    scene.apply("refused", merged(BASE, {"replicas": 2}))
    scene.await_settled("refused")
    assert scene.condition("refused", "Degraded")["status"] == "False"


def test_a_pod_that_lost_a_label_is_told_with_the_command_that_mends_it(scene: Scene) -> None:
    """It keeps running but does not count, and no other pod can be created in its place."""
    scene.apply("bare", TWO)
    scene.await_settled("bare")
    label = "app.kubernetes.io/component"
    scene.api.patch("Pod", scene.namespace, "bare-1", {"metadata": {"labels": {label: None}}})
    scene.await_true("bare", "Degraded", "PodNotRecognized")
    message = scene.condition("bare", "Degraded")["message"]
    assert f"kubectl label pod bare-1 --overwrite {label}=worker" in message
    scene.api.patch("Pod", scene.namespace, "bare-1", {"metadata": {"labels": {label: "worker"}}})
    scene.await_settled("bare")
    assert scene.condition("bare", "Degraded")["status"] == "False"


def test_a_paused_application_that_is_deleted_says_what_waits_for_it(scene: Scene) -> None:
    """Its namespace exists as long as it does."""
    scene.apply("kept", merged(TWO, {"deletion": {"kafka": "Delete"}}))
    scene.await_settled("kept")
    scene.annotate("kept", "reconcile", "paused")
    scene.api.delete("StreamApp", scene.namespace, "kept")
    scene.eventually(
        lambda: "are deleted, and after them" in scene.condition("kept", "Progressing").get("message", ""), "it is told"
    )
    scene.annotate("kept", "reconcile", None)
    scene.eventually(lambda: scene.find("StreamApp", "kept") is None, "it is gone")


def test_a_paused_application_is_ready_only_while_it_runs(scene: Scene) -> None:
    """Nothing is changed, but its conditions follow its workers."""
    scene.apply("paused", TWO)
    scene.await_settled("paused")
    sleep(15)
    scene.annotate("paused", "reconcile", "paused")
    scene.eventually(lambda: scene.condition("paused", "Progressing")["reason"] == "Paused", "it is told")
    assert scene.condition("paused", "Ready")["status"] == "True"
    good, scene.kubelets.images["delays:1"] = scene.kubelets.images["delays:1"], Image(pull_error="not found")
    for pod in scene.pods("paused"):
        scene.delete("Pod", pod)
    scene.eventually(lambda: scene.condition("paused", "Ready")["status"] == "False", "it is not ready", 5)
    scene.await_true("paused", "Degraded", "ImageNotPullable")
    scene.eventually(lambda: scene.status("paused")["workers"] == "0/2", "nobody works")
    assert scene.condition("paused", "Progressing")["reason"] == "Paused"
    scene.kubelets.images["delays:1"] = good
    scene.await_true("paused", "Ready")
    assert scene.condition("paused", "Progressing")["reason"] == "Paused"
    assert scene.status("paused")["tasks"] == f"{TASKS}/{TASKS}"


def test_a_first_revision_that_fails_is_stalled_until_it_works(scene: Scene) -> None:
    """There is no progress until somebody corrects it."""
    scene.apply("stalled", merged(TWO, {"image": "delays:nowhere"}))
    scene.await_true("stalled", "Stalled", "ImageNotPullable")
    assert scene.condition("stalled", "Progressing")["status"] == "False"
    scene.apply("stalled", TWO)
    scene.await_settled("stalled")
    assert not scene.condition("stalled", "Stalled")


def test_standbys_that_nobody_keeps_are_not_caught_up(scene: Scene) -> None:
    """One worker of two can run the tasks, but not their standbys."""
    spec = merged(TWO, {"standbyReplicas": 1, "sessionTimeout": "1s"})
    scene.apply("copied", spec)
    scene.await_settled("copied")
    scene.await_true("copied", "StandbysCaughtUp", "CaughtUp")
    sleep(15)
    scene.kubelets.freeze(scene.namespace, "copied-1")
    try:
        scene.eventually(lambda: scene.condition("copied", "StandbysCaughtUp")["status"] == "False", "it is told", 10)
        assert scene.condition("copied", "StandbysCaughtUp")["reason"] == "Restoring"
    finally:
        scene.kubelets.thaw(scene.namespace, "copied-1")
    scene.await_true("copied", "StandbysCaughtUp", "CaughtUp")
    assert "raise replicas (with autoscaling" in scene.refusal("copied", merged(spec, {"replicas": 1}))


def test_standbys_of_a_pod_that_is_gone_are_not_caught_up(scene: Scene) -> None:
    """It is told long before the session of its worker, which nobody hears from, times out."""
    scene.kubelets.images["delays:gone"] = Image(topology(TASKS))
    spec = {"image": "delays:gone", "standbyReplicas": 1, "sessionTimeout": "60s"}
    scene.apply("gone", merged(TWO, spec))
    scene.await_settled("gone")
    scene.await_true("gone", "StandbysCaughtUp", "CaughtUp")
    node = scene.kubelets.node_of(scene.namespace, "gone-1")
    image = scene.kubelets.images.pop("delays:gone")
    scene.kubelets.lose(node)
    try:
        scene.delete("Pod", "gone-1", gracePeriodSeconds=0)
        scene.eventually(lambda: scene.condition("gone", "StandbysCaughtUp")["status"] == "False", "it is told", 5)
    finally:
        scene.kubelets.recover(node)
    scene.kubelets.images["delays:gone"] = image
    scene.await_true("gone", "StandbysCaughtUp", "CaughtUp")


def test_standbys_of_a_pod_that_takes_long_to_end_are_not_caught_up(scene: Scene) -> None:
    """A worker that is to end takes over nothing, though it still reports."""
    scene.apply("ending", merged(TWO, {"standbyReplicas": 1, "sessionTimeout": "60s"}))
    scene.await_settled("ending")
    scene.await_true("ending", "StandbysCaughtUp", "CaughtUp")
    scene.kubelets.freeze(scene.namespace, "ending-1")
    try:
        scene.delete("Pod", "ending-1", gracePeriodSeconds=30)
        scene.eventually(lambda: scene.condition("ending", "StandbysCaughtUp")["status"] == "False", "it is told", 5)
    finally:
        scene.kubelets.thaw(scene.namespace, "ending-1")
    scene.await_true("ending", "StandbysCaughtUp", "CaughtUp")
