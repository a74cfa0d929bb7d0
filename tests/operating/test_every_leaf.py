"""Each leaf of a StreamApp's specification is set, changed and removed: the workers follow and return to the start.

The leaves are those of the CRD itself: one that is added there and has no case here makes a test fail.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.cluster.api import ApiFailure
from tests.cluster.nodes.images import Image, topology
from tests.cluster.waiting import together
from tests.operating.final_state import difference
from tests.operating.leaves import CASES, Case, Look, leaves, prepare
from tests.operating.observable_state import at_rest, observed
from tests.operating.scene import BASE, TASKS, Scene, merged, scene_of

LANES = 6
SHARE = 12
"""Leaves in a run of `make test`, other ones in each."""


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "leaves") as made:
        prepare(made)
        yield made


def _await_back(scene: Scene, name: str, before: Any) -> None:
    """Wait until the state is the same as before."""
    scene.eventually(
        lambda: observed(scene, name) == before,
        lambda: f"{name} comes back:\n" + "\n".join(difference(before, observed(scene, name))),
    )


def _await_shown(scene: Scene, name: str, shows: Callable[[Look], Any], expected: Any) -> None:
    """Wait until the operator has finished, and check what shows."""

    def shown() -> Any:
        try:
            return shows(Look(scene, name))
        except ApiFailure as failure:  # the StatefulSet is just made anew
            return failure

    scene.await_settled(name)
    scene.eventually(lambda: shown() == expected, lambda: f"{name} shows {expected}: {shown()}")


def _set_changed_removed(scene: Scene, name: str, case: Case, before: Any) -> None:
    assert case.shows(Look(scene, name)) != case.expected[0], "it shows before it is set"
    for change, expected in zip((case.first, case.second), case.expected, strict=True):
        scene.apply(name, merged(BASE, change))
        _await_shown(scene, name, case.shows, expected)
    scene.apply(name, BASE)
    scene.await_settled(name)
    _await_back(scene, name, before)


# Leaves that take more than that.


def _fixed_by_rules(scene: Scene, name: str) -> None:
    """An immutable leaf shows from the beginning, and the API server explains why it cannot change."""
    volumes = merged(BASE, {"applicationId": "orders.v1", "state": {"storageClassName": "standard"}})
    pods = merged(BASE, {"state": {"ephemeral": True, "size": "2Gi"}})
    scene.apply(name, volumes)
    scene.apply(f"{name}-plain", pods)
    for each in (name, f"{name}-plain"):
        scene.await_settled(each)
    look, plain = Look(scene, name), Look(scene, f"{name}-plain")
    assert look.in_pods(lambda pod: pod.variable("MILLPOND_APPLICATION_ID")) == "orders.v1"
    assert look.stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "standard"
    claims = scene.of_app("PersistentVolumeClaim", name)
    assert [claim["spec"]["storageClassName"] for claim in claims] == ["standard"]
    assert "volumeClaimTemplates" not in plain.stateful_set["spec"]
    assert not scene.of_app("PersistentVolumeClaim", f"{name}-plain")
    assert plain.in_pods(lambda pod: (pod.volume("state") or {}).get("emptyDir")) == {"sizeLimit": "2Gi"}
    refused = {
        "cannot be changed, set or removed later; make a new StreamApp": [
            (name, merged(volumes, {"applicationId": "orders.v2"})),
            (name, merged(volumes, {"applicationId": None})),
            (f"{name}-plain", merged(pods, {"applicationId": "orders.v3"})),
        ],
        "volumes cannot change their class: keep storageClassName as it is": [
            (name, merged(volumes, {"state": {"storageClassName": "other"}})),
            (name, merged(volumes, {"state": None})),
        ],
        "state cannot move between volumes and pods: keep ephemeral as it is": [
            (name, merged(volumes, {"state": {"ephemeral": True, "storageClassName": None}})),
            (f"{name}-plain", merged(pods, {"state": {"ephemeral": False}})),
            (f"{name}-plain", merged(pods, {"state": None})),
        ],
    }
    for sentence, attempts in refused.items():
        for app, spec in attempts:
            assert sentence in scene.refusal(app, spec)
    # Ephemeral state has no volume that could not shrink.
    scene.apply(f"{name}-plain", merged(pods, {"state": {"size": "1Gi"}}))
    scene.await_settled(f"{name}-plain")
    shown = Look(scene, f"{name}-plain").in_pods(lambda pod: (pod.volume("state") or {})["emptyDir"])
    assert shown == {"sizeLimit": "1Gi"}


def _guarantee(scene: Scene, name: str) -> None:
    """The guarantee changes only together with a stop of all workers."""
    scene.apply(name, merged(BASE, {"replicas": 2}))
    scene.await_settled(name)
    before = at_rest(scene, name)
    weaker = merged(BASE, {"replicas": 2, "processingGuarantee": "at_least_once"})
    assert "set rollout.strategy to Recreate in the same change" in scene.refusal(name, weaker)
    recreate = merged(BASE, {"replicas": 2, "rollout": {"strategy": "Recreate"}})

    def shows(look: Look) -> Any:
        return look.in_pods(lambda pod: pod.variable("MILLPOND_PROCESSING_GUARANTEE"))

    for guarantee in ("at_least_once", "exactly_once", "at_least_once"):
        scene.apply(name, merged(recreate, {"processingGuarantee": guarantee}))
        _await_shown(scene, name, shows, guarantee)
    scene.apply(name, recreate)
    _await_shown(scene, name, shows, "exactly_once")
    scene.apply(name, merged(BASE, {"replicas": 2}))
    scene.await_settled(name)
    _await_back(scene, name, before)


def _size(scene: Scene, name: str) -> None:
    """Volumes grow while workers run, and never shrink."""
    scene.apply(name, BASE)
    scene.await_settled(name)
    pods = scene.uids("Pod", name)

    def shows(look: Look) -> Any:
        template = look.stateful_set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
        claims = scene.of_app("PersistentVolumeClaim", name)
        return template, [claim["status"].get("capacity", {}).get("storage") for claim in claims]

    for size in ("2048Mi", "3Gi"):
        scene.apply(name, merged(BASE, {"state": {"size": size}}))
        _await_shown(scene, name, shows, ("2Gi", ["2Gi"]) if size == "2048Mi" else (size, [size]))
    assert scene.uids("Pod", name) == pods
    for state in ({"size": "2Gi"}, None):
        assert "cannot be made smaller" in scene.refusal(name, merged(BASE, {"state": state}))


def _warm_ups(scene: Scene, name: str) -> None:
    """`maxWarmupReplicas` limits the copies that a new worker restores at a time."""
    base = _beside_a_slow_worker(scene, name, {"acceptableRecoveryLag": 0})

    def warm_ups() -> int:
        workers = scene.get("StreamAssignment", name)["spec"]["workers"]
        return sum(len(worker.get("warmUp", ())) for worker in workers)

    for number, copies in ((2, 2), (1, 1), (2, 2), (0, 0)):  # with 0, tasks move at once
        spec = merged(base, {"maxWarmupReplicas": number})
        scene.apply(name, spec)
        scene.eventually(lambda copies=copies: warm_ups() == copies, lambda: f"{name} makes other copies: {warm_ups()}")
    assert "should be greater than or equal to 0" in scene.refusal(name, merged(base, {"maxWarmupReplicas": -1}))


def _lag(scene: Scene, name: str) -> None:
    """A copy with at most this lag counts as caught up."""
    base = _beside_a_slow_worker(scene, name, {"standbyReplicas": 1})
    for spec, status in (
        (base, "False"),
        (merged(base, {"acceptableRecoveryLag": 0}), "False"),
        (merged(base, {"acceptableRecoveryLag": 1_000_000}), "True"),
        (base, "False"),
    ):
        generation = scene.apply(name, spec)["metadata"]["generation"]
        wanted = {"status": status, "observedGeneration": generation}
        scene.eventually(
            lambda wanted=wanted: wanted.items() <= scene.condition(name, "StandbysCaughtUp").items(),
            lambda: f"copies count otherwise: {scene.status(name)}",
        )


def _beside_a_slow_worker(scene: Scene, name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the observations of an application whose second worker restores very slowly."""
    alone = merged(BASE, {"image": name})
    scene.kubelets.images[name] = Image(topology(partitions=TASKS))
    scene.apply(name, alone)
    scene.await_settled(name)
    scene.kubelets.images[name] = Image(topology(partitions=TASKS), restores_for=36_000)
    base = merged(alone, {"replicas": 2} | changes)
    scene.apply(name, base)
    scene.await_settled(name)
    return base


def _strategy(scene: Scene, name: str) -> None:
    """Workers restart one at a time, or all at once."""
    base = merged(BASE, {"replicas": 2})
    scene.apply(name, base)
    scene.await_settled(name)
    before = at_rest(scene, name)

    def told(reason: str) -> int:
        return sum(event.get("count", 1) for event in scene.events(name) if event["reason"] == reason)

    for number, (strategy, reason) in enumerate(
        (("Recreate", "Stopping"), ("Rolling", "RollingOut"), ("Recreate", "Stopping"), (None, "RollingOut"))
    ):
        so_far, uids = told(reason), scene.uids("Pod", name)
        scene.apply(name, merged(base, {"rollout": {"strategy": strategy}, "pod": {"labels": {"n": str(number)}}}))
        scene.await_settled(name)
        assert told(reason) == so_far + 1
        assert not uids.items() & scene.uids("Pod", name).items()
    scene.apply(name, base)
    scene.await_settled(name)
    _await_back(scene, name, before)


def _min_ready(scene: Scene, name: str) -> None:
    """A worker has to be ready for this long. The measured time tells the values apart."""
    base = merged(BASE, {"rollout": None})
    scene.apply(name, base)
    scene.await_settled(name)
    before = at_rest(scene, name)
    for given, seconds in (("0s", (0, 9)), ("20s", (20, 60)), (None, (10, 19))):
        # With the label, or without it again, pods are made anew.
        changes = {"rollout": {"minReady": given}, "pod": {"labels": {"min-ready": given}}} if given else {}
        scene.apply(name, merged(base, changes))
        scene.await_settled(name)
        (pod,) = scene.pods(name).values()
        worked = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready")["lastTransitionTime"]
        believed = scene.condition(name, "Ready")["lastTransitionTime"]
        took = (datetime.fromisoformat(believed) - datetime.fromisoformat(worked)).total_seconds()
        assert seconds[0] <= took <= seconds[1], (given, took)
    _await_back(scene, name, before)


def _deadline(scene: Scene, name: str) -> None:
    """A revision fails when it makes no progress for this long."""
    scene.kubelets.images[f"{name}:idle"] = Image(topology(partitions=TASKS), processes=False)
    scene.apply(name, BASE)
    scene.await_settled(name)
    before = at_rest(scene, name)
    for deadline in ("10s", "12s"):
        idle = merged(BASE, {"image": f"{name}:idle", "rollout": {"progressDeadline": deadline}})
        scene.apply(name, idle)
        found = scene.await_true(name, "Degraded", "NoProgress")
        assert f"within {deadline.removesuffix('s')} s (spec.rollout.progressDeadline)" in found["message"]
        scene.eventually(lambda: scene.condition(name, "Ready").get("reason") == "RolledBack", "it goes back")
        scene.apply(name, merged(BASE, {"rollout": {"progressDeadline": deadline}}))
        scene.await_settled(name)
    scene.apply(name, BASE)
    scene.await_settled(name)
    _await_back(scene, name, before)


def _rollback(scene: Scene, name: str) -> None:
    """A failed revision is rolled back, or stays for people to look at."""
    scene.kubelets.images[f"{name}:bad"] = Image(topology(partitions=TASKS, hash="h2", store="other"))
    scene.apply(name, BASE)
    scene.await_settled(name)
    before = at_rest(scene, name)
    bad = merged(BASE, {"image": f"{name}:bad"})

    def images() -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in scene.pods(name).values()}

    scene.apply(name, merged(bad, {"rollout": {"autoRollback": False}}))
    scene.await_true(name, "Degraded", "IncompatibleTopology")
    assert images() == {f"{name}:bad"}
    for rollout in ({"autoRollback": True}, None):
        scene.apply(name, merged(bad, {"rollout": rollout} if rollout else {}))
        scene.eventually(
            lambda: scene.condition(name, "Ready").get("reason") == "RolledBack" and images() == {"delays:1"},
            lambda: f"it goes back: {scene.status(name)}",
        )
        scene.apply(name, BASE)
        scene.await_settled(name)
        _await_back(scene, name, before)


_SNAPSHOTS: tuple[tuple[str, Any, Any], ...] = (
    ("schedule", "* * * * *", "*/2 * * * *"),
    ("timeZone", "Europe/Berlin", "Asia/Tokyo"),
    ("whenReplayExceeds", "100h", "168h"),
    ("catalog", "s3://states/a", "s3://states/b"),
    ("keep", 3, 4),
    ("deadline", "10m", "20m"),
    ("backoffLimit", 1, 0),
    ("ttlSecondsAfterFinished", 900, 1000),
    ("spark.image", "spark:1", "spark:2"),
    ("spark.mode", "Pod", "Executors"),
    ("spark.executors", 3, 4),
    ("spark.resources.requests.*", {"cpu": 1}, {"cpu": 2}),
    ("spark.resources.limits.*", {"memory": "2Gi"}, {"memory": "3Gi"}),
)


def _snapshots(scene: Scene, name: str) -> None:
    """The values show in created StateBootstraps or in the status; without them none is created."""
    for image in ("spark:1", "spark:2"):
        scene.kubelets.images[image] = Image()
    scene.apply(name, BASE)
    scene.await_settled(name)
    before = at_rest(scene, name)
    for which in (1, 2):
        wanted: dict[str, Any] = {"location": "s3://states/one"}
        for leaf in _SNAPSHOTS:
            *outer, last = leaf[0].removesuffix(".*").split(".")
            inner = wanted
            for part in outer:
                inner = inner.setdefault(part, {})
            inner[last] = leaf[which]
        scene.apply(name, merged(BASE, {"bootstrap": wanted}))
        own = {"schedule", "timeZone", "whenReplayExceeds"}
        expected = {key: value for key, value in wanted.items() if key not in own} | {"streamApp": name}
        scene.eventually(
            lambda expected=expected: any(expected.items() <= each["spec"].items() for each in _made(scene, name)),
            lambda expected=expected: f"{expected}: {[each['spec'] for each in _made(scene, name)]}",
            200,
        )
        told = f"{wanted['schedule']} {wanted['timeZone']}"
        assert scene.status(name)["bootstrap"]["schedule"] == told
    scene.apply(name, BASE)
    for each in _made(scene, name):
        scene.delete("StateBootstrap", each["metadata"]["name"])
    scene.await_settled(name)
    _await_back(scene, name, before)


def _made(scene: Scene, name: str) -> list[Any]:
    found = scene.api.list("StateBootstrap", scene.namespace)
    return [each for each in found if each["spec"]["streamApp"] == name]


_AUTOSCALING: tuple[tuple[str, Any, Any], ...] = (
    ("mode", "Auto", "Recommend"),
    ("minReplicas", 1, 2),
    ("maxReplicas", 3, 4),
    ("targetLag", "10s", "1m"),
    ("targetUtilization", 0.5, 0.9),
    ("stabilization", "2m", "10m"),
    ("rescalesPerDay", 1, 10),
)


def _autoscaling(scene: Scene, name: str) -> None:
    """The bounds and the mode show in the status; `tests/autoscaling` has what the targets do."""
    base = merged(BASE, {"replicas": 1})
    scene.apply(name, base)
    scene.await_settled(name)
    before = at_rest(scene, name)
    for which, workers in ((1, 1), (2, 1)):
        scene.apply(name, merged(base, {"autoscaling": {leaf[0]: leaf[which] for leaf in _AUTOSCALING}}))
        wanted = {"mode": _AUTOSCALING[0][which], "maxReplicas": _AUTOSCALING[2][which], "currentReplicas": workers}
        scene.eventually(
            lambda wanted=wanted: wanted.items() <= scene.status(name).get("autoscaling", {}).items(),
            lambda: f"the autoscaler shows: {scene.status(name)}",
        )
    scene.apply(name, merged(base, {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}))
    scene.eventually(lambda: len(scene.pods(name)) == 2, lambda: f"two workers run: {scene.status(name)}")
    scene.apply(name, base)
    scene.await_settled(name)
    _await_back(scene, name, before)


_MORE: dict[tuple[str, ...], Callable[[Scene, str], None]] = {
    ("applicationId", "state.storageClassName", "state.ephemeral"): _fixed_by_rules,
    ("processingGuarantee",): _guarantee,
    ("state.size",): _size,
    ("maxWarmupReplicas",): _warm_ups,
    ("acceptableRecoveryLag",): _lag,
    ("rollout.strategy",): _strategy,
    ("rollout.minReady",): _min_ready,
    ("rollout.progressDeadline",): _deadline,
    ("rollout.autoRollback",): _rollback,
    tuple(f"bootstrap.{leaf}" for leaf, *_ in _SNAPSHOTS): _snapshots,
    tuple(f"autoscaling.{leaf}" for leaf, *_ in _AUTOSCALING): _autoscaling,
}
_REQUIRED = ("image", "topology", "kafka", "kafka.bootstrapServers")


def test_each_leaf_of_the_crd_has_a_case() -> None:
    """A field without a case here may have no effect."""
    cased = {case.leaf for case in CASES} | {leaf for some in _MORE for leaf in some}
    assert cased == leaves(), f"in this module, add or remove cases for {sorted(map(str, cased ^ leaves()))}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_leaf_of_the_spec_reaches_the_workers(scene: Scene, seed: int, soak: bool) -> None:
    """The StatefulSet and the workers show each change, and in the end the state is the same as before."""
    left: queue.SimpleQueue[Case] = queue.SimpleQueue()
    for case in CASES if soak else random.Random(seed).sample(CASES, SHARE):
        left.put(case)
    failures: list[str] = []

    def lane(number: int) -> None:
        name = f"leaf-{number}"
        scene.apply(name, BASE)
        scene.await_settled(name)
        before = at_rest(scene, name)
        while True:
            try:
                case = left.get_nowait()
            except queue.Empty:
                return
            try:
                _set_changed_removed(scene, name, case, before)
            except Exception as error:
                failures.append(f"{case.leaf}: {error}")
                return  # who knows what it left behind

    together([lambda number=number: lane(number) for number in range(LANES)], "lanes")
    assert not failures, "\n".join(failures)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_leaf_changes_the_lifecycle_and_back(scene: Scene) -> None:
    """Leaves that show in behaviour, and leaves that rules protect."""
    acts = [lambda act=act: act(scene, act.__name__.strip("_").replace("_", "-")) for act in _MORE.values()]
    together(acts, "leaves")


def test_no_leaf_that_is_required_can_be_removed(scene: Scene) -> None:
    """The API server names the missing one."""
    for leaf in _REQUIRED:
        change: Any = None
        for part in reversed(leaf.split(".")):
            change = {part: change}
        assert f"spec.{leaf}: Required value" in scene.refusal("required", merged(BASE, change))
