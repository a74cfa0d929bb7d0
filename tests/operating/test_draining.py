"""The annotation `millpond.dev/drain`, obeyed by a running operator and its coordinator."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operating.scene import BASE, TASKS, Scene, merged, scene_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "drain") as made:
        yield made


def _active(scene: Scene, worker: str) -> list[str]:
    workers = scene.get("StreamAssignment", "drained")["spec"]["workers"]
    return next((each.get("active", []) + each.get("owns", []) for each in workers if each["name"] == worker), [])


def _drained(scene: Scene) -> bool:
    draining = scene.status("drained").get("draining", {})
    return bool(draining) and draining.get("drained") == draining["workers"]


def test_annotated_worker_is_drained_until_the_annotation_is_removed(scene: Scene) -> None:
    """All tasks run meanwhile, over a change of the operator too; a request for all workers is refused."""
    scene.apply("drained", merged(BASE, {"replicas": 3, "standbyReplicas": 1}))
    scene.await_settled("drained")
    pods = scene.uids("Pod", "drained")
    scene.annotate("drained", "drain", "drained-1")
    scene.eventually(lambda: _drained(scene), "it is drained")
    assert _active(scene, "drained-1") == []
    assert scene.condition("drained", "Progressing")["reason"] == "Drained"
    assert scene.condition("drained", "Ready")["status"] == "True"
    streams = scene.kubelets.streams(scene.namespace, "drained")
    assert len(streams.running()) == TASKS
    scene.annotate("drained", "drain", "drained-0,drained-1,drained-2")
    scene.eventually(
        lambda: (
            scene.condition("drained", "Progressing")["reason"] == "DrainRefused" and bool(_active(scene, "drained-1"))
        ),
        "it is refused, and the tasks come back",
    )
    assert "leave out at least one" in scene.condition("drained", "Progressing")["message"]
    scene.annotate("drained", "drain", "drained-2")
    scene.eventually(lambda: _drained(scene), "it is drained")
    scene.annotate("drained", "drain", None)
    scene.eventually(lambda: bool(_active(scene, "drained-2")), "it has tasks again")
    scene.await_settled("drained")
    assert "draining" not in scene.status("drained")
    assert scene.uids("Pod", "drained") == pods
    assert not streams.fenced, "no task was taken from a worker that processed it"
    reasons = {each["reason"] for each in scene.events("drained")}
    assert {"Draining", "Drained", "DrainRefused", "DrainEnded"} <= reasons
