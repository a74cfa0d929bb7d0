"""Faults of nodes, API server, broker, disks and operator under load: no record is lost or doubled.

`make e2e` runs some of them, `make worst-days` all, with longer outages. They follow each other, on one application.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Object, eventually
from e2e.clusters import Place
from e2e.commands import Lacking
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.condition_watch import ConditionWatch
from e2e.measuring.pauses import Event
from e2e.measuring.traffic import PARTITIONS
from e2e.measuring.verification import Verification
from e2e.streamapp import condition
from e2e.worst_days.conducting import Days
from e2e.worst_days.nodes import Nodes
from tests.support.measuring.figures import Figures
from tests.support.measuring.standstills import Standstills

_NAMESPACE = "millpond-e2e-worst-days"
_IN_FULL = bool(os.environ.get("E2E_WORST_DAYS"))
_OUTAGE_S = 60.0 if _IN_FULL else 20.0
_SESSION_S = 6.0
#: The wished pause of tasks whose worker is lost: the session timeout, and time to take them over.
_LOST_S = _SESSION_S + 10.0
#: The wished pause of tasks when no worker is lost.
_PAUSE_S = 5.0
#: The wished time until a condition reports a lost worker. A cluster reports a lost node after 40 s.
_REPORTED_S = 15.0
#: For so long a test waits for conditions and events.
_PATIENCE_S = 90.0

in_full = pytest.mark.skipif(not _IN_FULL, reason="only `make worst-days` causes this fault")


@pytest.fixture(scope="module")
def nodes(place: Place, cluster: Cluster) -> Iterator[Nodes]:
    """The nodes, which are as before after the tests."""
    if place.kind is None:
        pytest.skip("only the nodes of a kind cluster of this machine can be killed")
    try:
        nodes = Nodes(cluster)
    except Lacking as lacking:
        pytest.skip(str(lacking))
    yield nodes
    nodes.heal()


@pytest.fixture(scope="module")
def own_kafka(cluster: Cluster, images: Images, operator: Installation, nodes: Nodes) -> Iterator[Kafka]:
    """A broker that the tests reach without the API server."""
    cluster.recreate_namespace(_NAMESPACE)
    with Kafka(cluster, _NAMESPACE, images.broker, through_node=True) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def verification(nodes: Nodes, own_kafka: Kafka, images: Images, events: list[Event]) -> Iterator[Verification]:
    """The input and the check of its results."""
    with Verification(nodes.cluster, own_kafka, images) as verification:
        verification.meter.events = events
        yield verification


@pytest.fixture(scope="module")
def days(
    nodes: Nodes, verification: Verification, images: Images, operator: Installation, standstills: Standstills
) -> Iterator[Days]:
    """The application with two workers, under load."""
    app = verification.app
    with ConditionWatch(app, verification.meter, 2 * PARTITIONS, standstills) as watch:
        days = Days(verification, watch, nodes, operator, images)
        resources = {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "384Mi"}}
        app.apply(verification.spec(resources=resources))
        app.settled(2, 180, images.verifier("v1"))
        verification.meter.learn()
        yield days
    app.kubectl("delete", "sapp", app.name, "--wait=false")
    eventually(lambda: not app.exists() and not app.pods(), "the application is gone", 120)


def test_killed_node_holds_no_tasks(days: Days, figures: Figures) -> None:
    """Workers of other nodes run the tasks of a node without power; conditions and events report it."""
    app, node = days.verification.app, _node(days.victim())
    with days.fault("node killed", 180), days.watch.lost(node):
        days.nodes.kill(node)
        _await_lost(days, figures)
        app.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=120s")
        days.verification.meter.rest(60)
        days.nodes.undo()
    _note_pause(days, figures, _LOST_S)


def test_tasks_run_while_the_api_server_is_away(days: Days, figures: Figures) -> None:
    """All tasks run during the outage, and the operator serves again when the API server is back."""
    meter = days.verification.meter
    name = f"API server away for {_OUTAGE_S:.0f} s"
    with days.fault(name, 180), days.watch.unwatched():
        with days.nodes.api_server_away(_OUTAGE_S):
            meter.rest(_PATIENCE_S)
        days.await_leader()
    _note_pause(days, figures, _PAUSE_S)


def test_full_volume_stops_one_worker_only(days: Days, cluster: Cluster, figures: Figures) -> None:
    """A worker that cannot write its state reports that; others run its tasks until there is room again."""
    app = days.verification.app
    victim = days.victim()
    node, directory = _node(victim), _directory(cluster, victim)
    with days.nodes.small_disk(node, directory):
        app.kubectl("delete", "pod", victim["metadata"]["name"])
        app.settled(2, 120)
        with days.fault("volume full", 180):
            days.nodes.fill_disk(node, directory)
            try:
                app.until(lambda now: condition(now, "Degraded").get("reason") == "StateUnusable", "it is degraded", 90)
                days.verification.meter.rest(60)
            finally:
                days.nodes.empty_disk(node, directory)
    _note_pause(days, figures, _PAUSE_S)
    app.kubectl("delete", "pod", victim["metadata"]["name"])  # the next one has its old disk again, with its old state


@in_full
def test_frozen_node_holds_no_tasks(days: Days, figures: Figures) -> None:
    """Workers of other nodes run the tasks of a frozen node, and it does no harm when it runs again."""
    app, victim = days.verification.app, days.victim()
    node = _node(victim)
    with days.fault("node frozen and thawed", 180), days.watch.lost(node):
        days.nodes.freeze(node)
        _await_lost(days, figures)
        # Pods on it cannot even be deleted.
        app.kubectl("delete", "pod", victim["metadata"]["name"], "--wait=false")
        app.kubectl("wait", "--for=condition=Ready=Unknown", f"node/{node}", "--timeout=120s")
        days.verification.meter.rest(60)
        assert victim["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in app.pods()}
        days.nodes.undo()
    _note_pause(days, figures, _LOST_S)


@in_full
def test_drained_node_hands_its_tasks_over(days: Days, figures: Figures) -> None:
    """`kubectl drain`: tasks move before their worker ends; it returns with its volume when the node does."""
    app, victim = days.verification.app, days.victim()
    with days.fault("node drained", 180):
        days.nodes.drain(_node(victim))
        days.verification.meter.rest(60)
        app.until(lambda now: condition(now, "Degraded").get("reason") == "Unschedulable", "the worker has no node", 60)
    _note_pause(days, figures, _PAUSE_S)


@in_full
def test_tasks_run_again_when_the_broker_does(days: Days, own_kafka: Kafka) -> None:
    """The only broker is killed and starts again: tasks run as soon as it serves."""
    restarts = _restarts(own_kafka.pod())
    # What may pass by itself is reported after ten seconds.
    with days.fault("broker killed", 180), days.watch.unwatched():
        days.nodes.kill_process(own_kafka.pod())
        eventually(lambda: _restarts(own_kafka.pod()) > restarts, "the broker is started again", 60)
        eventually(own_kafka.answers, "the broker answers", 60)


@in_full
def test_tasks_of_a_killed_worker_run_elsewhere(days: Days, figures: Figures) -> None:
    """SIGKILL: its connection breaks; at the latest, the session timeout reveals it."""
    victim = days.victim()
    with days.fault("worker killed", 180), days.watch.unwatched():
        days.nodes.kill_process(victim)
        _await_not_ready(days, figures)
    _note_pause(days, figures, _LOST_S)


@in_full
def test_worker_that_takes_too_much_memory_comes_back(days: Days, figures: Figures) -> None:
    """The kernel kills it, others run its tasks, and it starts again."""
    app = days.verification.app
    victim = str(days.victim()["metadata"]["name"])
    with days.fault("worker out of memory", 180), days.watch.unwatched():
        app.kubectl("exec", victim, "--", "touch", "/tmp/leak")  # noqa: S108 - in the container
        eventually(lambda: _last_end(app.pods(), victim) == "OOMKilled", "the kernel kills the worker", 90)
        _await_not_ready(days, figures)
    _note_pause(days, figures, _LOST_S)


@in_full
def test_rollout_continues_under_another_leader(days: Days, images: Images, figures: Figures) -> None:
    """The leading operator is killed when a rollout has begun: another one ends it."""
    app = days.verification.app
    with days.fault("leader killed during a rollout", 240):
        days.version = "v2"
        app.patch(image=images.verifier("v2"))
        eventually(lambda: len(set(app.images())) == 2, "the first worker has the new image", 90)
        leader = days.operator.leading_pod()
        assert leader is not None
        days.nodes.kill_process(leader)
    _note_pause(days, figures, _PAUSE_S)


@in_full
def test_bad_image_during_a_scale_out_is_rolled_back(days: Days, images: Images, figures: Figures) -> None:
    """The workers that run stay as they are, and a good image ends the scale-out."""
    app = days.verification.app
    with days.fault("bad image during a scale-out", 240, workers=3):
        app.patch(image=images.verifier("bad"), replicas=3)
        app.until(_has_failed, "the rollout has failed", 180)
        days.verification.meter.rest(60)
        app.patch(image=images.verifier(days.version))
    _note_pause(days, figures, _PAUSE_S)
    app.scale(2)
    app.settled(2, 180)


@in_full
def test_tasks_run_while_the_installation_is_upgraded(days: Days, figures: Figures) -> None:
    """All pods of the operator are replaced by those of another version."""
    with days.fault("installation upgraded", 180):
        days.operator.upgrade("another")
    _note_pause(days, figures, _PAUSE_S)


def test_every_record_counts_once_after_the_worst_days(days: Days) -> None:
    """Output and changelogs equal the expected records of the input."""
    assert days.verification.sent > 1_000
    wrong = days.verification.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:50])


def _note_pause(days: Days, figures: Figures, wished_s: float) -> None:
    day = days.past[-1]
    figures.note(f"{day.fault}: longest pause of a task", day.longest, "s", wished_s)


def _await_lost(days: Days, figures: Figures) -> None:
    """Wait until conditions and events report that a worker is lost."""
    app = days.verification.app
    _await_not_ready(days, figures)
    app.until(lambda now: condition(now, "Degraded").get("reason") == "WorkerSilent", "it is degraded", _PATIENCE_S)
    app.until(
        lambda now: condition(now, "StandbysCaughtUp").get("status") == "False", "it has no standbys", _PATIENCE_S
    )
    eventually(lambda: {"WorkerLost", "TasksTakenOver"} <= app.reasons(), "events say so", _PATIENCE_S)


def _await_not_ready(days: Days, figures: Figures) -> None:
    began = time.monotonic()
    days.verification.app.until(
        lambda now: condition(now, "Ready").get("status") == "False", "it is not ready", _PATIENCE_S
    )
    figures.note("a lost worker is reported", time.monotonic() - began, "s", _REPORTED_S)


def _node(pod: Object) -> str:
    return str(pod["spec"]["nodeName"])


def _directory(cluster: Cluster, pod: Object) -> str:
    """Return the directory of a worker's volume on its node."""
    claim = cluster.get("persistentvolumeclaims", pod["metadata"]["namespace"], f"state-{pod['metadata']['name']}")
    assert claim is not None
    volume = cluster.get("persistentvolumes", None, claim["spec"]["volumeName"])
    assert volume is not None
    source = volume["spec"].get("hostPath") or volume["spec"].get("local")
    if source is None:
        pytest.skip("the volumes of this cluster are not directories of a node")
    return str(source["path"])


def _restarts(pod: Object) -> int:
    """Return how often the container of a pod was started again, if it runs."""
    status = pod["status"]["containerStatuses"][0]
    return int(status["restartCount"]) if "running" in status["state"] else -1


def _last_end(pods: list[Object], name: str) -> str:
    """Return why the container of a pod ended last."""
    for pod in pods:
        for status in pod["status"].get("containerStatuses", []) if pod["metadata"]["name"] == name else []:
            ended = status["state"].get("terminated") or status.get("lastState", {}).get("terminated") or {}
            return str(ended.get("reason"))
    return ""


def _has_failed(app: Object) -> bool:
    status = app["status"]
    return bool(status.get("failed")) and condition(app, "Degraded").get("status") == "True"
