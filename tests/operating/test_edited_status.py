"""A status that someone else wrote into, as `kubectl edit --subresource status` or a restored backup does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.waiting import sleep
from tests.operating.scene import BASE, Scene, merged, scene_of

pytestmark = pytest.mark.timeout(300)

_SINCE = "2026-01-01T00:00:00Z"
_FOREIGN = {"type": "BackedUp", "status": "True", "reason": "Copied", "message": "", "lastTransitionTime": _SINCE}
_STALLED = {"type": "Stalled", "status": "True", "reason": "Edited", "message": "", "lastTransitionTime": _SINCE}


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "edited") as made:
        yield made


def _edit(scene: Scene, status: dict[str, object]) -> None:
    scene.api.patch("StreamApp", scene.namespace, "edited", {"status": status}, subresource="status")


def _types(scene: Scene) -> set[str]:
    return {each["type"] for each in scene.status("edited").get("conditions", ())}


def test_fields_that_someone_else_wrote_into_the_status_go_again(scene: Scene) -> None:
    """Server-side apply alone keeps them: a rollout that never ends, workers that are drained for nobody."""
    scene.apply("edited", merged(BASE, {"replicas": 2}))
    scene.await_settled("edited")
    pods = scene.uids("Pod", "edited")
    _edit(
        scene,
        {
            "draining": {"workers": ["edited-0"], "since": _SINCE},
            "rollout": {"revision": "other", "strategy": "Rolling", "startedAt": "9999-12-31T23:59:59Z"},
            "scaling": {"to": 1, "since": "9999-12-31T23:59:59Z"},
            "failed": {"revision": "other", "strategy": "Rolling", "reason": "Edited", "message": "By hand."},
            "conditions": [*scene.status("edited")["conditions"], _STALLED],
        },
    )
    scene.eventually(
        lambda: (
            not {"draining", "rollout", "scaling", "failed"} & scene.status("edited").keys()
            and "Stalled" not in _types(scene)
        ),
        lambda: f"the status is the operator's again: {scene.status('edited')}",
    )
    scene.await_settled("edited")
    assert scene.uids("Pod", "edited") == pods
    assert len([each for each in scene.events("edited") if each["reason"] == "DrainEnded"]) <= 1


def test_field_that_the_operator_takes_over_can_be_removed_again(scene: Scene) -> None:
    """Then its rest belongs to the other program alone, and is no valid rollout."""
    scene.apply("edited", merged(BASE, {"replicas": 2}))
    scene.await_settled("edited")
    scene.annotate("edited", "reconcile", "paused")
    scene.eventually(lambda: scene.condition("edited", "Progressing")["reason"] == "Paused", "it is paused")
    _edit(scene, {"rollout": {"revision": "other", "startedAt": "9999-12-31T23:59:59Z"}})
    scene.apply("edited", merged(BASE, {"replicas": 2, "image": "delays:2"}))
    scene.annotate("edited", "reconcile", None)
    scene.eventually(
        lambda: scene.status("edited")["image"] == "delays:2" and "rollout" not in scene.status("edited"),
        lambda: f"the rollout ends: {scene.status('edited')}",
    )
    scene.await_settled("edited")


def test_condition_of_another_program_stays_and_does_no_harm(scene: Scene) -> None:
    """The operator leaves it alone, writes nothing about it, and can still report its own."""
    scene.apply("edited", merged(BASE, {"replicas": 2}))
    scene.await_settled("edited")
    _edit(scene, {"conditions": [*scene.status("edited")["conditions"], _FOREIGN]})
    scene.annotate("edited", "reconcile", "paused")
    scene.eventually(lambda: scene.condition("edited", "Progressing")["reason"] == "Paused", "it is paused")
    scene.annotate("edited", "reconcile", None)
    scene.await_settled("edited")
    assert "BackedUp" in _types(scene)
    scene.proxy.forget()
    sleep(60)
    assert [call.resource for call in scene.proxy.writes() if call.name == "edited"] == []
