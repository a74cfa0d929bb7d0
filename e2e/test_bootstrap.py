"""Snapshots on a cluster: Spark's executors and the object store are pods; an empty worker loads a snapshot."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster, Object, eventually
from e2e.clusters import Place
from e2e.commands import Lacking
from e2e.counting.counting import COUNTS, ORDERS
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.objects import ObjectStore
from e2e.streamapp import StreamApp, condition
from tests.support.kafka import committed_offsets, create_topic, end_offsets, produce, read

_NAME = "counting"
_PARTITIONS = 8
_CUSTOMERS = 100_000
#: Workers load a snapshot where a replay takes several seconds.
_ROUNDS = 9


@pytest.fixture(scope="module")
def spark(place: Place, images: Images, say: Callable[[str], None]) -> Images:
    """The images that only these tests need, on the nodes; with `E2E_BUILT` set they are there already."""
    if not os.environ.get("E2E_BUILT"):
        say("building the images for snapshots and bringing them to the nodes")
        try:
            images.build_for_snapshots(place)
        except Lacking as lacking:
            pytest.skip(str(lacking))
    return images


@pytest.fixture(scope="module")
def objects(cluster: Cluster, kafka: Kafka, spark: Images) -> Iterator[ObjectStore]:
    """A real S3 server beside the broker, only for these tests: others check that nothing is left in the namespace."""
    store = ObjectStore(cluster, kafka.namespace, spark.objects)
    store.start()
    yield store
    store.stop()


@pytest.fixture(scope="module")
def app(
    cluster: Cluster, kafka: Kafka, spark: Images, operator: Installation, objects: ObjectStore
) -> Iterator[StreamApp]:
    """The application with one worker, so that no standby has its state."""
    for topic in (ORDERS, COUNTS):
        create_topic(kafka.address, topic, _PARTITIONS)
    app = StreamApp(cluster, kafka.namespace, _NAME)
    app.apply(
        {
            "image": spark.counting,
            "imagePullPolicy": "IfNotPresent",
            "topology": "counting:topology",
            "replicas": 1,
            "kafka": {"bootstrapServers": kafka.inside},
            "state": {"size": "256Mi"},
            "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
            "rollout": {"minReady": "1s"},
            "bootstrap": {
                "location": objects.location,
                "credentialsSecret": objects.secret,
                "keep": 2,
                "spark": {
                    "image": spark.counting_spark,
                    "mode": "Executors",
                    "executors": 2,
                    "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1536Mi"}},
                },
            },
        }
    )
    app.settled(1, 180)
    yield app
    app.kubectl("delete", "sapp", app.name, "--wait=false")
    eventually(lambda: not app.exists() and not app.left(), "the application and its snapshots' pods are deleted", 120)


@pytest.fixture(scope="module")
def sent() -> Counter[str]:
    """Return how many orders of each customer were sent."""
    return Counter()


@pytest.mark.core
def test_scheduled_snapshot_is_made_by_executors_in_pods(
    cluster: Cluster, kafka: Kafka, app: StreamApp, sent: Counter[str]
) -> None:
    """The schedule makes a StateBootstrap; its driver starts pods in a namespace with the restricted standard."""
    for _ in range(_ROUNDS):
        _send(kafka, sent, range(_CUSTOMERS))
    _await_committed(kafka)
    app.patch(bootstrap={"schedule": "* * * * *"})
    seen: set[str] = set()

    def made() -> Object | None:
        seen.update(
            pod["metadata"]["name"]
            for pod in cluster.objects("pods", kafka.namespace, "app.kubernetes.io/component=snapshot-executor")
        )
        found = [
            each
            for each in _snapshots(cluster, kafka)
            if each.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        ]
        return found[0] if found else None

    snapshot = eventually(made, "a snapshot is made", 420, 0.5)
    status = snapshot["status"]
    assert status["phase"] == "Succeeded", status
    assert status["rows"] == _CUSTOMERS
    assert status["records"] >= _CUSTOMERS
    assert status["progress"]["stage"] == "publishing"
    assert condition(snapshot, "Ready")["status"] == "True"
    assert len(seen) == 2, f"executors: {seen}"
    app.patch(bootstrap={"schedule": None})


@pytest.mark.core
def test_worker_without_a_disk_comes_back_through_the_snapshot(
    kafka: Kafka, app: StreamApp, sent: Counter[str]
) -> None:
    """After its pod and its volume are deleted, no record is lost or counted twice."""
    _send(kafka, sent, range(0, _CUSTOMERS, 10))  # what the snapshot does not have
    _await_committed(kafka)
    pod = f"{_NAME}-0"
    before = app.pods()[0]["metadata"]["uid"]
    app.kubectl("delete", "pvc", f"state-{pod}", "--wait=false")
    app.kubectl("delete", "pod", pod)
    eventually(
        lambda: [each["metadata"]["uid"] for each in app.pods()] not in ([], [before]), "the pod is created again", 120
    )
    app.settled(1, 240)
    assert "bytes of snapshot" in app.kubectl("logs", pod), "the state came from the snapshot"
    _send(kafka, sent, range(0, _CUSTOMERS, 7))
    _await_committed(kafka)
    last: dict[str, int] = {}
    for row in read(kafka.address, COUNTS, settled=True):
        assert row.key is not None
        assert row.value is not None
        last[row.key.decode()] = int.from_bytes(row.value, "big")
    wrong = {name: (last.get(name), count) for name, count in sent.items() if last.get(name) != count}
    assert not wrong, f"{len(wrong)} customers, for example {dict(list(wrong.items())[:5])}"


def _send(kafka: Kafka, sent: Counter[str], customers: range) -> None:
    names = [f"customer-{number:06}" for number in customers]
    produce(kafka.address, ORDERS, ((name, "x" * 40) for name in names))
    sent.update(names)


def _await_committed(kafka: Kafka) -> None:
    ends = end_offsets(kafka.address, ORDERS)

    def through() -> bool:
        committed = committed_offsets(kafka.address, _NAME, ORDERS)
        return all(committed[partition][0] >= end for partition, end in ends.items() if end)

    eventually(through, "all orders are counted", 300, 0.5)


def _snapshots(cluster: Cluster, kafka: Kafka) -> list[Object]:
    return cluster.objects("statebootstraps", kafka.namespace)
