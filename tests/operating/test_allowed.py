"""What the operator's settings do not allow is refused before anything starts, and running workers keep running."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millpond_operator.controllers.allowed import Allowed
from millpond_operator.resources import parse, parse_bootstrap
from tests.cluster.waiting import together
from tests.operating.scene import BASE, Scene, merged, scene_of
from tests.operating.world import World

_LIMITS = {"ALLOWED_MOUNTS": "team-*", "ALLOWED_TOLERATIONS": "spot", "ALLOWED_PRIORITY_CLASSES": "-"}
_MOUNT = {"name": "files", "path": "/files"}


def problem(allowed: Allowed, **spec: Any) -> str:
    """Return the message about a StreamApp with these fields; "" when it may be as it is."""
    object = {"metadata": {"namespace": "shop", "name": "pay"}, "spec": BASE | spec}
    found = allowed.problem(parse(object))
    return "" if found is None else found.message


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"pod": {"mounts": [_MOUNT | {"secret": "root"}]}}, "spec.pod.mounts names the Secret or ConfigMap 'root'"),
        ({"pod": {"mounts": [_MOUNT | {"configMap": "root"}]}}, "'root'"),
        ({"kafka": {"bootstrapServers": "k:9092", "credentialsSecret": "root"}}, "spec.kafka.credentialsSecret names"),
        ({"bootstrap": {"location": "s3://a-b/c", "credentialsSecret": "root"}}, "spec.bootstrap.credentialsSecret"),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "root", "key": "a"}}}]}, "spec.env names"),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "root", "key": "a"}}}]}, "spec.env names"),
        ({"pod": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}, "names the taint 'gpu'"),
        ({"pod": {"tolerations": [{"operator": "Exists"}]}}, "spec.pod.tolerations names every taint"),
        ({"pod": {"priorityClassName": "high"}}, "spec.pod.priorityClassName names the priority class 'high'"),
    ],
)
def test_everything_that_pods_would_use_is_checked(spec: dict[str, Any], says: str) -> None:
    """Without limits it is allowed, and with them the message has the field, the name, the setting and the cure."""
    assert not problem(Allowed(), **spec)
    found = problem(Allowed(["team-*"], ["spot"], ["low"]), **spec)
    assert says in found
    assert "which this operator does not allow (--allowed-" in found


def test_patterns_allow_names() -> None:
    """They are whole names, or have wildcards."""
    spec = {
        "kafka": {"bootstrapServers": "k:9092", "credentialsSecret": "team-kafka"},
        "env": [{"name": "A", "value": "root"}],
        "pod": {"mounts": [_MOUNT | {"secret": "team-files"}], "tolerations": [{"key": "spot"}]},
    }
    assert not problem(Allowed(["team-*"], ["spot"], ["-"]), **spec)
    assert "team-files" in problem(Allowed(["team", "team-kafka"]), **spec)
    assert "spot" in problem(Allowed(tolerations=["-"]), **spec)
    assert not problem(Allowed(tolerations=["*"]), pod={"tolerations": [{"operator": "Exists"}]})


def test_secret_of_a_snapshot_is_checked() -> None:
    """A StateBootstrap of its own names a Secret too."""
    object = {
        "metadata": {"namespace": "shop", "name": "once"},
        "spec": {"streamApp": "pay", "location": "s3://a-b/c", "credentialsSecret": "root", "spark": {"image": "s:1"}},
    }
    found = Allowed(["team-*"]).problem_of_snapshot(parse_bootstrap(object))
    assert found is not None
    assert "spec.credentialsSecret names the Secret or ConfigMap 'root'" in found.message
    assert Allowed().problem_of_snapshot(parse_bootstrap(object)) is None


@pytest.fixture
def scene(world: World, tmp_path: Any) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "allowed", **_LIMITS) as made:
        yield made


def test_app_that_uses_what_is_not_allowed_does_not_start(scene: Scene) -> None:
    """It starts when it does not use it any more."""

    def starts_later(name: str, spec: dict[str, Any]) -> None:
        scene.apply(name, merged(BASE, spec))
        found = scene.await_true(name, "Degraded", "NotAllowed")
        assert "or have an administrator of the operator allow it" in found["message"]
        assert scene.await_true(name, "Stalled", "NotAllowed")
        for kind in ("StatefulSet", "ConfigMap", "ServiceAccount"):
            assert not scene.of_app(kind, name)
        scene.apply(name, BASE)
        scene.await_settled(name)

    together(
        [
            lambda: starts_later("mounts", {"pod": {"mounts": [_MOUNT | {"secret": "root"}]}}),
            lambda: starts_later("tolerates", {"pod": {"tolerations": [{"operator": "Exists"}]}}),
            lambda: starts_later("urgent", {"pod": {"priorityClassName": "high"}}),
        ],
        "each is refused, and starts later",
    )


def test_change_to_what_is_not_allowed_changes_nothing(scene: Scene) -> None:
    """Its workers keep running, are served, and it can be deleted."""
    scene.apply("pay", BASE)
    scene.await_settled("pay")
    pods = scene.uids("Pod", "pay")
    revision = scene.status("pay")["targetRevision"]
    scene.apply("pay", merged(BASE, {"image": "delays:2", "pod": {"priorityClassName": "high"}}))
    scene.await_true("pay", "Degraded", "NotAllowed")
    assert scene.uids("Pod", "pay") == pods
    assert scene.status("pay")["targetRevision"] == revision
    scene.apply("pay", merged(BASE, {"image": "delays:2"}))
    scene.await_settled("pay")
    assert scene.status("pay")["image"] == "delays:2"
    scene.apply("pay", merged(BASE, {"pod": {"priorityClassName": "high"}}))
    scene.await_true("pay", "Degraded", "NotAllowed")
    scene.delete("StreamApp", "pay")
    scene.eventually(lambda: not scene.pods("pay"), "its pods are deleted")


def test_workers_get_default_resources_where_the_app_names_none(world: World, tmp_path: Any) -> None:
    """Those of the StreamApp are used as they are, and are not merged with the default."""
    default = '{"requests": {"cpu": "100m", "memory": "256Mi"}}'
    with scene_of(world, tmp_path, "resources", DEFAULT_WORKER_RESOURCES=default) as scene:
        scene.apply("plain", BASE)
        scene.apply("own", merged(BASE, {"resources": {"limits": {"memory": "1Gi"}}}))

        def resources(name: str) -> Any:
            found = scene.find("StatefulSet", name)
            return found and found["spec"]["template"]["spec"]["containers"][0].get("resources")

        scene.eventually(lambda: all(map(resources, ("plain", "own"))), "both are there")
        assert resources("plain") == {"requests": {"cpu": "100m", "memory": "256Mi"}}
        assert resources("own")["limits"] == {"memory": "1Gi"}
        assert "cpu" not in resources("own").get("requests", {})
