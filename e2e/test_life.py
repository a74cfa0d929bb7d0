"""The life of an application under a steady input: no record is lost or doubled, and no task stands still for long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from e2e.cluster import Cluster, Object, eventually
from e2e.clusters import Place
from e2e.commands import ROOT, found, run
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.condition_watch import ConditionWatch
from e2e.measuring.pauses import Event
from e2e.measuring.traffic import PARTITIONS
from e2e.measuring.verification import Verification
from e2e.streamapp import StreamApp, condition
from tests.support.kafka import topic_names
from tests.support.status_accuracy import is_ready

_OUTAGE_S = 60.0
_UPGRADE_PAUSE_S = 2.0


@pytest.fixture(scope="module")
def verification(
    cluster: Cluster, kafka: Kafka, images: Images, operator: Installation, events: list[Event]
) -> Iterator[Verification]:
    """The application, begun with two workers of its first version; the tests of this module are its life, in order."""
    with Verification(cluster, kafka, images) as verification:
        verification.meter.events = events
        yield verification


@pytest.fixture(scope="module")
def condition_watch(verification: Verification) -> Iterator[ConditionWatch]:
    """What the application tells of itself all the while, beside what is so."""
    with ConditionWatch(verification.app, verification.meter, 2 * PARTITIONS) as condition_watch:
        yield condition_watch


def test_an_applied_manifest_becomes_a_running_application(
    verification: Verification, condition_watch: ConditionWatch, images: Images
) -> None:
    """`kubectl apply` of a StreamApp, and its output comes."""
    app = verification.app
    app.apply(verification.spec())
    app.settled(2, 180, images.verifier("v1"))
    verification.meter.learn()
    assert "True" in app.kubectl("get", "sapp", app.name)


def test_scaling_out_moves_tasks_to_the_new_workers(verification: Verification) -> None:
    """`kubectl scale --replicas=4`: four workers share the tasks."""
    app = verification.app
    with verification.meter.event("scale 2 to 4"):
        app.scale(4)
        app.settled(4, 180)


def test_scaling_in_drains_the_workers_that_go(verification: Verification) -> None:
    """`kubectl scale --replicas=2`: the last two hand over their tasks and are gone."""
    app = verification.app
    with verification.meter.event("scale 4 to 2"):
        app.scale(2)
        app.settled(2, 180)


def test_another_image_is_rolled_out_one_worker_at_a_time(verification: Verification, images: Images) -> None:
    """An edited image reaches all workers, and each task stands still for no longer than two seconds."""
    app = verification.app
    before = app.object()["status"]["currentRevision"]
    with verification.meter.event("image upgrade"):
        app.patch(image=images.verifier("v2"))
        after = app.settled(2, 240, images.verifier("v2"))
    assert after["status"]["currentRevision"] != before
    assert verification.meter.events[-1].at(99) <= _UPGRADE_PAUSE_S


@pytest.mark.parametrize("version", ["bad", "hang"])
def test_broken_image_is_rolled_back(verification: Verification, images: Images, version: str) -> None:
    """The rollout stops at its first worker, which gets the image back that worked; the status says why."""
    app = verification.app
    running = app.object()["status"]["currentRevision"]
    with verification.meter.event(f"{version} image, rolled back"):
        app.patch(image=images.verifier(version))
        failed = _rolled_back(verification, images.verifier("v2"))
    assert failed["status"]["currentRevision"] == running
    assert failed["status"]["failed"]["message"]
    _back_to(verification, images, "v2")


def test_another_topology_is_refused_unless_it_is_recreated(verification: Verification, images: Images) -> None:
    """Under the strategy Rolling a store with another name is refused, by a message that says what changed."""
    app = verification.app
    with verification.meter.event("incompatible image, refused"):
        app.patch(image=images.verifier("v3"))
        failed = _rolled_back(verification, images.verifier("v2"))
    assert "ledger" in failed["status"]["failed"]["message"]
    _back_to(verification, images, "v2")


def test_deleted_pod_is_recreated(verification: Verification) -> None:
    """`kubectl delete pod` of a worker: it ends in order, another goes on, and it comes back; events say so."""
    app = verification.app
    with verification.meter.event("worker pod deleted"):
        _delete_a_pod(verification)
        app.settled(2, 120)
    assert {"WorkerEnded", "WorkerBack"} <= app.reasons()


def test_variable_that_somebody_adds_is_taken_out(verification: Verification) -> None:
    """`kubectl set env` of the StatefulSet: no worker starts with the variable, and an event says who added it."""
    app = verification.app
    with verification.meter.event("variable added by hand"):
        app.kubectl("set", "env", f"statefulset/{app.name}", "DEBUG=1")
        eventually(lambda: "DEBUG" not in app.kubectl("set", "env", f"statefulset/{app.name}", "--list"), "it goes", 10)
        _delete_a_pod(verification)
        app.settled(2, 120)
    assert all("DEBUG" not in {each["name"] for each in pod["spec"]["containers"][0]["env"]} for pod in app.pods())
    assert "ChangeUndone" in app.reasons()


def test_killed_worker_restarts(verification: Verification) -> None:
    """A worker without a moment to end in order."""
    app = verification.app
    with verification.meter.event("worker killed"):
        _delete_a_pod(verification, "--grace-period=0", "--force")
        app.settled(2, 120)


def test_workers_run_without_the_operator(
    verification: Verification, condition_watch: ConditionWatch, operator: Installation
) -> None:
    """The operator is gone for a minute and a worker dies meanwhile: its tasks go on before the operator is back."""
    app = verification.app
    with verification.meter.event("operator away, worker dies"), condition_watch.unwatched():
        gone = time.monotonic()
        operator.remove()
        try:
            _delete_a_pod(verification, "--grace-period=0", "--force")
            verification.meter.rest(50)
            eventually(lambda: time.monotonic() - gone >= _OUTAGE_S, "a minute has passed", _OUTAGE_S)
        finally:
            operator.bring_back()
        app.settled(2, 120)
        # One that died before the operator heard of it would be given time to come back.
        outage_s = int(time.monotonic() - gone) + 1
        eventually(lambda: app.logged("answers again", outage_s), "all workers have found the operator", 60)


def test_a_lost_node_holds_no_tasks(
    verification: Verification, condition_watch: ConditionWatch, place: Place, operator: Installation
) -> None:
    """A node falls silent, and the pods there cannot even be deleted: others process its tasks until it is back.

    The application says so from the session timeout on, long before the cluster does.
    """
    if place.kind is None or (docker := found("docker")) is None:
        pytest.skip("only the nodes of a kind cluster can be frozen")
    app = verification.app
    victim = next((pod for pod in app.pods() if pod["spec"]["nodeName"] not in _needed_nodes(operator)), None)
    if victim is None:
        pytest.skip("every node with a worker is needed for something else")
    node = victim["spec"]["nodeName"]
    with verification.meter.event("node lost, and back"):
        with condition_watch.lost(node):
            run(docker, "pause", node)
            try:
                app.until(lambda now: condition(now, "Ready").get("status") == "False", "it is not ready", 15)
                app.until(lambda now: condition(now, "Degraded").get("reason") == "WorkerSilent", "it is degraded", 15)
                app.until(
                    lambda now: condition(now, "StandbysCaughtUp").get("status") == "False", "it has no standbys", 15
                )
                eventually(lambda: {"WorkerLost", "TasksTakenOver"} <= app.reasons(), "events say so", 15)
                app.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
                app.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=120s")
                verification.meter.rest(60)
                assert victim["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in app.pods()}
            finally:
                run(docker, "unpause", node)
        app.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=120s")
        app.settled(2, 180)


def test_suspended_application_resumes_where_it_stopped(verification: Verification) -> None:
    """Suspended, it has no workers and keeps its volumes; resumed, it goes on."""
    app = verification.app
    with verification.meter.event("suspended and resumed"):
        app.patch(suspended=True)
        app.until(_is_suspended, f"{app.name} is suspended", 90)
        eventually(lambda: not app.pods(), "no worker is left", 60)
        app.patch(suspended=False)
        app.settled(2, 120)


def test_conditions_told_the_truth_throughout(verification: Verification, condition_watch: ConditionWatch) -> None:
    """None was wrong for longer than five seconds, none flapped, and no passing trouble of a volume was told."""
    wrong = condition_watch.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong)
    assert not condition_watch.hasty()


def test_every_record_is_output_once(verification: Verification) -> None:
    """All that came out, and all that was logged, is what the input comes to: nothing lost, nothing twice."""
    assert verification.sent > 1_000
    wrong = verification.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:50])


def test_another_topology_is_rolled_out_by_recreating_it(
    verification: Verification, images: Images, kafka: Kafka
) -> None:
    """Under the strategy Recreate all workers end, and then begin with the other topology."""
    app = verification.app
    app.patch(image=images.verifier("v3"), rollout={"strategy": "Recreate"})
    app.settled(2, 180, images.verifier("v3"))
    assert f"{app.name}-ledger-changelog" in topic_names(kafka.address, app.name)


def test_a_deleted_application_leaves_nothing_behind(
    verification: Verification, cluster: Cluster, kafka: Kafka
) -> None:
    """With `deletion.kafka: Delete` its internal topics go too; pods and volumes always do.

    Topics of a topology that it had before stay: by their names they might be another application's.
    """
    app = verification.app
    app.patch(deletion={"kafka": "Delete"})
    app.until(lambda now: bool(now["metadata"].get("finalizers")), "its end is guarded", 30)
    app.kubectl("delete", "sapp", app.name, "--wait=false")
    eventually(lambda: not app.exists(), "the StreamApp is gone", 120)
    assert all("journal" in topic for topic in topic_names(kafka.address, f"{app.name}-"))
    kinds = ("pods", "statefulsets", "persistentvolumeclaims", "poddisruptionbudgets", "streamassignments")
    try:
        eventually(lambda: not _left(cluster, app.namespace, kinds), "nothing is left of it", 90)
    except AssertionError as error:
        raise AssertionError(f"{error}, but there are {_left(cluster, app.namespace, kinds)}") from None


def test_applications_are_served_again_when_the_definitions_are_back(
    verification: Verification, cluster: Cluster, place: Place, operator: Installation, images: Images
) -> None:
    """`kubectl delete` and `apply` of the CustomResourceDefinitions: the operator goes on by itself.

    All applications go with them, so this is the last test here, and for a cluster of its own.
    """
    if place.kind is None:
        pytest.skip("in a cluster that others use, their applications would go")
    definitions = str(ROOT / "crds")
    cluster.kubectl("delete", "-k", definitions, "--wait=true", timeout_s=180)
    eventually(lambda: not _served(operator), "the operator says that it does not serve anybody", 60)
    cluster.kubectl("apply", "--server-side", "-k", definitions)
    eventually(lambda: _served(operator), "the operator serves again", 60)
    app = StreamApp(cluster, verification.app.namespace, "again")
    app.apply({**verification.spec(), "replicas": 1, "standbyReplicas": 0})
    app.settled(1, 180, images.verifier("v1"))
    app.kubectl("delete", "sapp", app.name)


def _served(operator: Installation) -> bool:
    """Whether the operator that leads is ready."""
    leader = operator.leader()
    return any(is_ready(pod) for pod in operator.pods() if pod["metadata"]["name"] == leader)


def _left(cluster: Cluster, namespace: str, kinds: Iterable[str]) -> list[str]:
    """What is in the namespace, besides the broker."""
    names = ((kind, each["metadata"]["name"]) for kind in kinds for each in cluster.objects(kind, namespace))
    return [f"{kind}/{name}" for kind, name in names if name != "kafka"]


def _needed_nodes(operator: Installation) -> set[str]:
    """Nodes of the broker, which is where the control plane is, and of the operator that leads."""
    leader = operator.leader()
    return {str(pod["spec"]["nodeName"]) for pod in operator.pods() if pod["metadata"]["name"] == leader}


def _delete_a_pod(verification: Verification, *options: str) -> None:
    app = verification.app
    victim = app.pods()[0]["metadata"]
    app.kubectl("delete", "pod", victim["name"], "--wait=false", *options)
    eventually(
        lambda: any(
            pod["metadata"]["name"] == victim["name"] and pod["metadata"]["uid"] != victim["uid"] for pod in app.pods()
        ),
        f"{victim['name']} is made again", 120,
    )  # fmt: skip


def _rolled_back(verification: Verification, image: str) -> Object:
    """Wait until a rollout has failed and all workers have this image."""
    app = verification.app

    def holds(now: Object) -> bool:
        status = now["status"]
        return (
            status.get("observedGeneration") == now["metadata"]["generation"]
            and bool(status.get("failed"))
            and status.get("phase") == "Degraded"
            and condition(now, "Degraded").get("status") == "True"
            and status.get("readyReplicas") == 2
            and set(app.images()) == {image}
        )

    return app.until(holds, "the rollout has failed and is rolled back", 180)


def _back_to(verification: Verification, images: Images, version: str) -> None:
    """Correct the image, as whoever reads the status would."""
    verification.app.patch(image=images.verifier(version))
    verification.app.settled(2, 120, images.verifier(version))


def _is_suspended(app: Object) -> bool:
    status = app["status"]
    return status.get("phase") == "Suspended" and condition(app, "Suspended").get("status") == "True"
