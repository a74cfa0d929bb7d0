"""The life of an application under a steady input: no record is lost or doubled, and tasks pause only briefly."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator

import pytest

from e2e.cluster import Cluster, Object, eventually
from e2e.clusters import Place
from e2e.commands import ROOT
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.condition_watch import ConditionWatch
from e2e.measuring.pauses import Event
from e2e.measuring.traffic import PARTITIONS
from e2e.measuring.verification import Verification
from e2e.streamapp import StreamApp, condition
from tests.chaos.application import TOTALS
from tests.support.kafka import topic_names
from tests.support.measuring.figures import Figures
from tests.support.measuring.standstills import Standstills
from tests.support.measuring.status_accuracy import FLAP_S, is_ready

_OUTAGE_S = 60.0


@pytest.fixture(scope="module")
def verification(
    cluster: Cluster, kafka: Kafka, images: Images, operator: Installation, events: list[Event]
) -> Iterator[Verification]:
    """The application, started with two workers of its first version; the tests of this module change it, in order."""
    with Verification(cluster, kafka, images) as verification:
        verification.meter.events = events
        yield verification


@pytest.fixture(scope="module")
def condition_watch(verification: Verification, standstills: Standstills) -> Iterator[ConditionWatch]:
    """A comparison of the application's conditions with its pods and output, during all tests."""
    with ConditionWatch(verification.app, verification.meter, 2 * PARTITIONS, standstills) as condition_watch:
        yield condition_watch


@pytest.mark.core
def test_an_applied_manifest_becomes_a_running_application(
    verification: Verification, condition_watch: ConditionWatch, images: Images
) -> None:
    """After `kubectl apply` of a StreamApp, the application produces output."""
    app = verification.app
    app.apply(verification.spec())
    app.settled(2, 180, images.verifier("v1"))
    verification.meter.learn()
    assert "True" in app.kubectl("get", "sapp", app.name)


@pytest.mark.core
def test_commands_show_the_application(verification: Verification) -> None:
    """`millpond status`, `tasks`, `logs` and `query` with `--kubernetes`, as a user runs them beside the cluster."""
    app, millpond = verification.app, verification.app.millpond
    name = f"{app.namespace}/{app.name}"
    assert app.name in millpond("status", "--kubernetes", "--namespace", app.namespace)
    told = json.loads(millpond("status", "--kubernetes", name, "--json"))
    assert app.name in json.dumps(told)
    tasks = millpond("tasks", "--kubernetes", name)
    assert all(f"{subtopology}_{each}" in tasks for subtopology in (0, 1) for each in range(PARTITIONS))
    lines = millpond("logs", "--kubernetes", name, "--tail", "3").splitlines()
    assert {line.split()[0] for line in lines} == {pod["metadata"]["name"] for pod in app.pods()}
    rows = millpond("query", "--kubernetes", app.name, "--namespace", app.namespace, TOTALS, "--limit", "3")
    assert "word-" in rows


@pytest.mark.core
def test_scaling_out_moves_tasks_to_the_new_workers(verification: Verification) -> None:
    """`kubectl scale --replicas=4`: four workers share the tasks."""
    app = verification.app
    with verification.meter.event("scale 2 to 4"):
        app.scale(4)
        app.settled(4, 180)


@pytest.mark.core
def test_scaling_in_drains_the_workers_that_go(verification: Verification) -> None:
    """`kubectl scale --replicas=2`: the last two workers hand over their tasks and end."""
    app = verification.app
    with verification.meter.event("scale 4 to 2"):
        app.scale(2)
        app.settled(2, 180)


@pytest.mark.core
def test_another_image_is_rolled_out_one_worker_at_a_time(
    verification: Verification, images: Images, figures: Figures
) -> None:
    """A new image reaches all workers; how long tasks pause is a figure."""
    app = verification.app
    before = app.object()["status"]["currentRevision"]
    with verification.meter.event("image upgrade"):
        app.patch(image=images.verifier("v2"))
        after = app.settled(2, 240, images.verifier("v2"))
    assert after["status"]["currentRevision"] != before
    figures.note("image upgrade: p99 of the tasks' pauses", verification.meter.events[-1].at(99), "s", wished=2.0)


@pytest.mark.parametrize("version", ["bad", "hang"])
def test_broken_image_is_rolled_back(verification: Verification, images: Images, version: str) -> None:
    """The rollout stops at its first worker, which is rolled back to the last good image; the status has the cause."""
    app = verification.app
    running = app.object()["status"]["currentRevision"]
    with verification.meter.event(f"{version} image, rolled back"):
        app.patch(image=images.verifier(version))
        failed = _rolled_back(verification, images.verifier("v2"))
    assert failed["status"]["currentRevision"] == running
    assert failed["status"]["failed"]["message"]
    _back_to(verification, images, "v2")


def test_another_topology_is_refused_unless_it_is_recreated(verification: Verification, images: Images) -> None:
    """Under the strategy Rolling a renamed store is rejected, with a message that has the difference."""
    app = verification.app
    with verification.meter.event("incompatible image, refused"):
        app.patch(image=images.verifier("v3"))
        failed = _rolled_back(verification, images.verifier("v2"))
    assert "ledger" in failed["status"]["failed"]["message"]
    _back_to(verification, images, "v2")


def test_deleted_pod_is_recreated(verification: Verification) -> None:
    """After `kubectl delete pod` a worker ends in order, another one runs its tasks, and it returns, with events."""
    app = verification.app
    with verification.meter.event("worker pod deleted"):
        _delete_a_pod(verification)
        app.settled(2, 120)
    app.await_events("WorkerEnded", "WorkerBack")


def test_variable_that_somebody_adds_is_taken_out(verification: Verification) -> None:
    """After `kubectl set env` of the StatefulSet no worker starts with the variable, and an event reports it."""
    app = verification.app
    with verification.meter.event("variable added by hand"):
        app.kubectl("set", "env", f"statefulset/{app.name}", "DEBUG=1")
        eventually(lambda: "DEBUG" not in app.kubectl("set", "env", f"statefulset/{app.name}", "--list"), "removed", 60)
        _delete_a_pod(verification)
        app.settled(2, 120)
    assert all("DEBUG" not in {each["name"] for each in pod["spec"]["containers"][0]["env"]} for pod in app.pods())
    app.await_events("ChangeUndone")


@pytest.mark.core
def test_killed_worker_restarts(verification: Verification) -> None:
    """A worker that is killed without time to end in order restarts."""
    app = verification.app
    with verification.meter.event("worker killed"):
        _delete_a_pod(verification, "--grace-period=0", "--force")
        app.settled(2, 120)


def test_workers_run_without_the_operator(
    verification: Verification, condition_watch: ConditionWatch, operator: Installation
) -> None:
    """Without an operator for a minute, the tasks of a worker that dies continue before the operator is back."""
    app = verification.app
    with verification.meter.event("operator away, worker dies"), condition_watch.unwatched():
        gone = time.monotonic()
        operator.remove()
        try:
            _delete_a_pod(verification, "--grace-period=0", "--force")
            verification.meter.rest(120)
            eventually(lambda: time.monotonic() - gone >= _OUTAGE_S, "a minute has passed", _OUTAGE_S)
        finally:
            operator.bring_back()
        app.settled(2, 120)
        # A worker that dies before its first heartbeat to the new operator would get time to return.
        outage_s = int(time.monotonic() - gone) + 1
        eventually(lambda: app.logged("answers again", outage_s), "all workers have found the operator", 60)


def test_suspended_application_resumes_where_it_stopped(verification: Verification) -> None:
    """A suspended application has no workers and keeps its volumes; a resumed one continues."""
    app = verification.app
    with verification.meter.event("suspended and resumed"):
        app.patch(suspended=True)
        app.until(_is_suspended, f"{app.name} is suspended", 90)
        eventually(lambda: not app.pods(), "no worker is left", 60)
        app.patch(suspended=False)
        app.settled(2, 120)


@pytest.mark.core
def test_conditions_told_the_truth_throughout(verification: Verification, condition_watch: ConditionWatch) -> None:
    """No condition is wrong for longer than five seconds, flaps, or reports a transient problem of a volume."""
    wrong = condition_watch.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong)
    assert not condition_watch.hasty()


@pytest.mark.core
def test_every_record_is_output_once(verification: Verification) -> None:
    """Output and changelogs equal the expected records of the input: none is lost, and none is doubled."""
    assert verification.sent > 1_000
    wrong = verification.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:50])


def test_another_topology_is_rolled_out_by_recreating_it(
    verification: Verification, images: Images, kafka: Kafka
) -> None:
    """Under the strategy Recreate all workers end, and then start with the other topology."""
    app = verification.app
    app.patch(image=images.verifier("v3"), rollout={"strategy": "Recreate"})
    app.settled(2, 180, images.verifier("v3"))
    assert f"{app.name}-ledger-changelog" in topic_names(kafka.address, app.name)


@pytest.mark.core
def test_a_deleted_application_leaves_nothing_behind(
    verification: Verification, cluster: Cluster, kafka: Kafka
) -> None:
    """With `deletion.kafka: Delete` internal topics are deleted too; pods and volumes always are.

    Topics of an earlier topology stay: by their names they might be another application's.
    """
    app = verification.app
    app.patch(deletion={"kafka": "Delete"})
    app.until(lambda now: bool(now["metadata"].get("finalizers")), "it has the finalizer", 60)
    app.kubectl("delete", "sapp", app.name, "--wait=false")
    eventually(lambda: not app.exists(), "the StreamApp is deleted", 120)
    # A broker shows deleted topics for a moment.
    eventually(
        lambda: all("journal" in topic for topic in topic_names(kafka.address, f"{app.name}-")),
        "its topics are deleted", 60,
    )  # fmt: skip
    kinds = ("pods", "statefulsets", "persistentvolumeclaims", "poddisruptionbudgets", "streamassignments")
    try:
        eventually(lambda: not _left(cluster, app.namespace, kinds), "nothing is left of it", 90)
    except AssertionError as error:
        raise AssertionError(f"{error}, but there are {_left(cluster, app.namespace, kinds)}") from None


def test_applications_are_served_again_when_the_definitions_are_back(
    verification: Verification, cluster: Cluster, place: Place, operator: Installation, images: Images
) -> None:
    """After `kubectl delete` and `apply` of the CustomResourceDefinitions, the operator continues by itself.

    This deletes all applications, so it is the last test here, and runs only on a cluster of its own.
    """
    if place.kind is None:
        pytest.skip("in a shared cluster, this would delete the applications of others")
    definitions = str(ROOT / "crds")
    cluster.kubectl("delete", "-k", definitions, "--wait=true", timeout_s=180)
    eventually(lambda: not _served(operator), "the operator is not ready", 60)
    cluster.kubectl("apply", "--server-side", "-k", definitions)
    eventually(lambda: _served(operator), "the operator serves again", 60)
    app = StreamApp(cluster, verification.app.namespace, "again")
    app.apply({**verification.spec(), "replicas": 1, "standbyReplicas": 0})
    app.settled(1, 180, images.verifier("v1"))
    app.kubectl("delete", "sapp", app.name)


def _served(operator: Installation) -> bool:
    """Return whether the leading operator is ready."""
    leader = operator.leader()
    return any(is_ready(pod) for pod in operator.pods() if pod["metadata"]["name"] == leader)


def _left(cluster: Cluster, namespace: str, kinds: Iterable[str]) -> list[str]:
    """Return the objects in the namespace, except the broker."""
    names = ((kind, each["metadata"]["name"]) for kind in kinds for each in cluster.objects(kind, namespace))
    return [f"{kind}/{name}" for kind, name in names if name != "kafka"]


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
    """Correct the image, as a reader of the status would."""
    verification.app.patch(image=images.verifier(version))
    verification.app.settled(2, 120, images.verifier(version))
    # The next test changes the application again: conditions that were healthy for a moment would look like a flap.
    time.sleep(FLAP_S + 1)


def _is_suspended(app: Object) -> bool:
    status = app["status"]
    return status.get("phase") == "Suspended" and condition(app, "Suspended").get("status") == "True"
