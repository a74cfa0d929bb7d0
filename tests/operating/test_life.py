"""What people and nodes do to a running application."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.cluster.api import ApiFailure
from tests.cluster.nodes.images import Image, topology
from tests.operating.final_state import difference
from tests.operating.observable_state import at_rest, observed
from tests.operating.scene import BASE, TASKS, Scene, merged, scene_of

TWO = merged(BASE, {"replicas": 2})

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "life") as made:
        yield made


def test_paused_reconciliation_changes_nothing_until_resumed(scene: Scene) -> None:
    """Manual changes to a paused application stay until it is resumed."""
    scene.apply("paused", TWO)
    scene.await_settled("paused")
    before = at_rest(scene, "paused")
    scene.annotate("paused", "reconcile", "paused")
    scene.eventually(lambda: scene.condition("paused", "Progressing").get("reason") == "Paused", "it is told")
    assert "remove it to continue" in scene.condition("paused", "Progressing")["message"]
    scene.apply("paused", merged(TWO, {"image": "delays:2", "replicas": 3}))
    scene.delete("Service", "paused")
    # What the operator would have done by then, it does for another one.
    scene.apply("clock", merged(TWO, {"image": "delays:2", "replicas": 3}))
    scene.await_settled("clock")
    assert not scene.find("Service", "paused")
    assert scene.get("StatefulSet", "paused")["spec"]["replicas"] == 2
    assert {pod["spec"]["containers"][0]["image"] for pod in scene.pods("paused").values()} == {"delays:1"}
    assert len(scene.kubelets.streams(scene.namespace, "paused").running()) == TASKS
    scene.annotate("paused", "reconcile", None)
    scene.eventually(lambda: scene.status("paused")["workers"] == "3/3" and scene.settled("paused"), "it goes on")
    assert {pod["spec"]["containers"][0]["image"] for pod in scene.pods("paused").values()} == {"delays:2"}
    assert scene.find("Service", "paused")
    scene.apply("paused", TWO)
    scene.await_settled("paused")
    scene.eventually(
        lambda: observed(scene, "paused") == before,
        lambda: "\n".join(difference(before, observed(scene, "paused"))),
    )


def test_new_restarted_at_restarts_workers_one_at_a_time(scene: Scene) -> None:
    """Setting the same value again restarts no worker."""
    scene.apply("restarted", merged(TWO, {"rollout": {"minReady": "1s"}}))
    scene.await_settled("restarted")
    streams = scene.kubelets.streams(scene.namespace, "restarted")
    for value in ("2026-01-01", "2026-01-02"):
        pods = scene.uids("Pod", "restarted")
        seen: list[dict[str, str]] = []

        def restarted(value: str = value, pods: dict[str, str] = pods, seen: list[dict[str, str]] = seen) -> bool:
            ready = {
                name: pod["metadata"]["uid"]
                for name, pod in scene.pods("restarted").items()
                if {"type": "Ready", "status": "True"}.items()
                <= next(
                    iter(each for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"), {}
                ).items()
            }
            seen.append(ready)
            template = scene.get("StatefulSet", "restarted")["spec"]["template"]["metadata"].get("annotations", {})
            return (
                template.get("millpond.dev/restartedAt") == value
                and len(ready) == 2
                and not ready.items() & pods.items()
                and scene.settled("restarted")
            )

        scene.annotate("restarted", "restartedAt", value)
        scene.eventually(restarted, lambda: f"all workers restart: {scene.status('restarted')}", poll_s=0.05)
        assert all(seen), "no worker was ready for a while"
    pods = scene.uids("Pod", "restarted")
    scene.annotate("restarted", "restartedAt", "2026-01-02")
    scene.apply("restarted", merged(TWO, {"rollout": {"minReady": "0s"}}))
    scene.await_settled("restarted")
    assert scene.uids("Pod", "restarted") == pods
    assert not streams.fenced, "no task was taken from a worker that processed it"


def test_suspended_application_keeps_its_volumes_and_resumes(scene: Scene) -> None:
    """Its workers commit and end; they get the same volumes back."""
    scene.apply("suspended", TWO)
    scene.await_settled("suspended")
    before, volumes = at_rest(scene, "suspended"), scene.uids("PersistentVolumeClaim", "suspended")
    streams = scene.kubelets.streams(scene.namespace, "suspended")
    owners = dict(streams.owners)
    scene.apply("suspended", merged(TWO, {"suspended": True, "image": "delays:2"}))
    scene.await_true("suspended", "Suspended")
    assert not scene.pods("suspended")
    assert not streams.running()
    assert streams.owners == owners
    assert not streams.fenced
    ready = scene.condition("suspended", "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Suspended")
    assert "set spec.suspended to false" in ready["message"]
    assert scene.uids("PersistentVolumeClaim", "suspended") == volumes
    scene.kubelets.images["delays:1"] = Image(topology(partitions=TASKS), restores_for=36_000)
    try:
        scene.apply("suspended", TWO)
        scene.await_settled("suspended")  # though nothing could be restored from nothing
    finally:
        scene.kubelets.images["delays:1"] = Image(topology(partitions=TASKS))
    assert scene.uids("PersistentVolumeClaim", "suspended") == volumes
    scene.eventually(
        lambda: observed(scene, "suspended") == before,
        lambda: "\n".join(difference(before, observed(scene, "suspended"))),
    )


def test_deletion_waits_for_workers_and_cleanup(scene: Scene) -> None:
    """The finalizer exists only while it has something to wait for, and nothing is left."""
    scene.apply("deleted", merged(TWO, {"deletion": {"kafka": "Delete"}}))
    scene.await_settled("deleted")
    streams = scene.kubelets.streams(scene.namespace, "deleted")
    scene.delete("StreamApp", "deleted")
    scene.eventually(lambda: not scene.find("StreamApp", "deleted"), lambda: f"it goes: {scene.status('deleted')}")
    assert streams.cleaned_up == 1
    assert not streams.owners
    _await_nothing_left(scene, "deleted")


@pytest.mark.parametrize("cure", ["the image is mended", "the topics are let be"])
def test_failing_cleanup_reports_its_cause_and_can_be_ended(scene: Scene, cure: str) -> None:
    """The condition names the cause and both cures."""
    name = f"stuck-{len(cure)}"
    spec = merged(BASE, {"image": name, "deletion": {"kafka": "Delete"}})
    scene.kubelets.images[name] = Image(topology(partitions=TASKS))
    scene.apply(name, spec)
    scene.await_settled(name)
    scene.kubelets.images[name] = Image(
        topology(partitions=TASKS), crash=("BrokerError", "kafka:9092 cannot be reached.")
    )
    scene.delete("StreamApp", name)
    message = scene.await_true(name, "Degraded", "CleanupFailed")["message"]
    assert "kafka:9092 cannot be reached" in message
    assert "set spec.deletion.kafka to Retain" in message
    assert scene.status(name)["phase"] == "Deleting"
    streams = scene.kubelets.streams(scene.namespace, name)
    if cure == "the image is mended":
        scene.kubelets.images[name] = Image(topology(partitions=TASKS))
        scene.delete("Job", f"{name}-cleanup", propagationPolicy="Background")
    else:
        scene.apply(name, merged(spec, {"deletion": {"kafka": "Retain"}}))
    scene.eventually(lambda: not scene.find("StreamApp", name), lambda: f"it goes: {scene.status(name)}")
    assert streams.cleaned_up == (cure == "the image is mended")
    _await_nothing_left(scene, name)


def test_deleted_application_can_be_recreated_at_once(scene: Scene) -> None:
    """The remaining objects of the former one are waited for, and are not reported as a mistake."""
    scene.apply("again", TWO)
    scene.await_settled("again")
    uid = scene.get("StreamApp", "again")["metadata"]["uid"]
    scene.delete("StreamApp", "again")
    scene.apply("again", TWO)
    scene.await_settled("again", 150)  # the garbage collector finds out about new kinds of owners every 30 s
    assert scene.get("StreamApp", "again")["metadata"]["uid"] != uid
    assert {owner["uid"] for owner in scene.get("StatefulSet", "again")["metadata"]["ownerReferences"]} != {uid}
    warnings = [event for event in scene.events("again") if event["type"] != "Normal"]
    assert not warnings, warnings


def test_tasks_of_a_lost_node_run_elsewhere(scene: Scene) -> None:
    """The pod cannot be deleted while the node is lost; nothing waits for that."""
    scene.apply("lost", merged(BASE, {"replicas": 3, "sessionTimeout": "1s"}))
    scene.await_settled("lost")
    streams = scene.kubelets.streams(scene.namespace, "lost")
    node = scene.kubelets.node_of(scene.namespace, "lost-1")
    uid = scene.uids("Pod", "lost")["lost-1"]

    def processed() -> set[str]:
        return {worker for worker in streams.running().values() if worker != "lost-1"}

    scene.kubelets.lose(node)
    try:
        scene.eventually(
            lambda: len(streams.running()) == TASKS and "lost-1" not in streams.running().values(), "they go"
        )
        scene.kubelets.evict(node)
        scene.eventually(lambda: "deletionTimestamp" in scene.pods("lost")["lost-1"]["metadata"], "it is deleted")
        scene.eventually(lambda: scene.condition("lost", "Ready")["status"] == "False", "it is told")
        assert scene.condition("lost", "Ready")["reason"] == "WorkersNotReady"
        assert scene.uids("Pod", "lost")["lost-1"] == uid
        # Changes go on meanwhile, as far as they can without that pod.
        scene.apply("lost", merged(BASE, {"replicas": 4, "sessionTimeout": "1s"}))
        scene.eventually(lambda: scene.status("lost")["workers"] == "3/4", lambda: str(scene.status("lost")))
        scene.eventually(
            lambda: len(processed()) >= 2 and len(streams.running()) == TASKS, "tasks that move to the new one go on"
        )
    finally:
        scene.kubelets.recover(node)
    scene.eventually(lambda: scene.uids("Pod", "lost").get("lost-1") not in {None, uid}, "the pod is recreated")
    scene.await_settled("lost")


def test_manual_changes_are_reverted_without_a_restart(scene: Scene) -> None:
    """The operator reverts changes to all objects of an application."""
    scene.apply("mended", TWO)
    scene.await_settled("mended")
    before, pods = at_rest(scene, "mended"), scene.uids("Pod", "mended")
    kinds = {
        "Service": {"spec": {"publishNotReadyAddresses": False}},
        "ServiceAccount": {"automountServiceAccountToken": True},
        "PodDisruptionBudget": {"spec": {"maxUnavailable": 2}},
        "NetworkPolicy": {"spec": {"ingress": [{}]}},
        "StatefulSet": {"spec": {"replicas": 1, "updateStrategy": {"type": "RollingUpdate"}, "minReadySeconds": 7}},
        "StreamAssignment": None,
    }

    def back() -> None:
        scene.eventually(
            lambda: scene.settled("mended") and _without_added(observed(scene, "mended")) == _without_added(before),
            lambda: "\n".join(difference(before, observed(scene, "mended"))),
        )

    for kind, change in kinds.items():
        if change is not None and kind != "StatefulSet":
            scene.patch(kind, "mended", change)
    scene.patch("ConfigMap", "mended-coordinator", {"data": {"ca.crt": "none"}})
    back()
    for kind in kinds:
        uid = scene.get(kind, "mended")["metadata"]["uid"]
        scene.delete(kind, "mended", propagationPolicy="Orphan")
        scene.eventually(
            lambda kind=kind, uid=uid: (
                (scene.find(kind, "mended") or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
            ),
            f"{kind} comes back",
        )
    scene.delete("ConfigMap", "mended-coordinator")
    back()
    assert scene.uids("Pod", "mended") == pods
    scene.patch("StatefulSet", "mended", kinds["StatefulSet"])
    back()
    scene.delete("StatefulSet", "mended", propagationPolicy="Foreground")
    scene.eventually(lambda: not scene.uids("Pod", "mended").items() & pods.items(), "its pods go with it")
    back()


def _without_added(seen: dict) -> dict:
    """Return the state without additions that the operator does not manage."""
    spec = {
        key: value
        for key, value in seen.get("StatefulSet/mended", {}).get("spec", {}).items()
        if key != "minReadySeconds"
    }
    return seen | {"StatefulSet/mended": seen.get("StatefulSet/mended", {}) | {"spec": spec}}


def test_recreate_admits_a_topology_after_the_last_old_worker(scene: Scene) -> None:
    """Two topologies never run at the same time, neither in pods nor in tasks."""
    scene.kubelets.images["recreated:2"] = Image(topology(partitions=TASKS, hash="h2", store="totals"))
    spec = merged(TWO, {"rollout": {"strategy": "Recreate"}})
    scene.apply("recreated", spec)
    scene.await_settled("recreated")
    streams = scene.kubelets.streams(scene.namespace, "recreated")
    for image, hash in (("recreated:2", "h2"), ("delays:1", "h1")):
        seen: list[frozenset[str]] = []

        def done(image: str = image, seen: list[frozenset[str]] = seen) -> bool:
            running = frozenset(pod["spec"]["containers"][0]["image"] for pod in scene.pods("recreated").values())
            seen.append(running)
            return running == {image} and scene.settled("recreated")

        scene.apply("recreated", merged(spec, {"image": image}))
        scene.eventually(done, lambda: f"it is recreated: {scene.status('recreated')}", poll_s=0.05)
        assert all(len(each) <= 1 for each in seen), list(itertools.groupby(seen))
        assert scene.status("recreated")["topology"] == hash
        assert scene.get("StreamAssignment", "recreated")["spec"]["topology"]["hash"] == hash
    assert not streams.fenced


def test_refused_volume_expansion_is_reported_without_stopping_workers(scene: Scene) -> None:
    """The workers continue with their volumes."""
    metadata = {"name": f"{scene.namespace}-fixed"}
    fixed = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": "none/none",
    }
    scene.api.apply(fixed)
    try:
        spec = merged(BASE, {"state": {"storageClassName": metadata["name"]}})
        scene.apply("full", spec)
        scene.await_settled("full")
        pods = scene.uids("Pod", "full")
        scene.apply("full", merged(spec, {"state": {"size": "2Gi"}}))
        found = scene.await_true("full", "Degraded", "VolumeNotExpandable")
        assert "allowVolumeExpansion" in found["message"]
        scene.eventually(lambda: scene.condition("full", "Ready")["status"] == "True", "it goes on")
        assert scene.uids("Pod", "full") == pods
        scene.api.apply(fixed | {"allowVolumeExpansion": True})
        # The operator tries once; what decides of volumes hears of classes when it does.
        scene.eventually(lambda: _may_grow(scene, "state-full-0"), "the API server knows that the class allows it")
        scene.annotate("full", "reconcile", "again")
        scene.await_settled("full")
        (claim,) = scene.of_app("PersistentVolumeClaim", "full")
        assert claim["spec"]["resources"]["requests"]["storage"] == "2Gi"
    finally:
        scene.api.delete("StorageClass", None, metadata["name"])


def _may_grow(scene: Scene, claim: str) -> bool:
    """Return whether the API server accepts a larger volume."""
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    try:
        scene.api.patch("PersistentVolumeClaim", scene.namespace, claim, larger, dry_run=True)
    except ApiFailure as failure:
        assert failure.status == HTTPStatus.FORBIDDEN, failure
        return False
    return True


def _await_nothing_left(scene: Scene, name: str) -> None:
    kinds = ("StatefulSet", "Pod", "Job", "Service", "StreamAssignment", "PersistentVolumeClaim", "ControllerRevision")
    scene.eventually(
        lambda: not any(scene.of_app(kind, name) for kind in kinds),
        lambda: f"nothing is left of {name}: {[each for kind in kinds for each in scene.of_app(kind, name)]}",
    )
