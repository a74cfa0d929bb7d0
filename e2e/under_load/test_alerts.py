"""Alerts of the chart on a cluster: each fires because of a real fault, and ends when that is mended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster, eventually
from e2e.clusters import Place
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.verification import Verification
from e2e.under_load.prometheus import PrometheusPod

pytestmark = pytest.mark.skipif(not os.environ.get("E2E_UNDER_LOAD"), reason="only `make e2e-load` runs this")

_NAMESPACE = "millpond-e2e-alerts"
_COST_S = 0.02
_USUAL, _TOO_MUCH = 15.0, 150.0
_ALERTS = {"AutoscalerAtMax", "LagGrowing", "OperatorDown", "RolledBack", "StreamAppDegraded", "WorkerDown"}
_FIRES_S = 200.0


class Alerts:
    """The alerts of this test that fire."""

    def __init__(self, prometheus: PrometheusPod, say: Callable[[str], None]) -> None:
        self._prometheus = prometheus
        self._say = say

    def fire(self, *names: str) -> None:
        """Wait until each of these alerts has fired."""
        waiting = set(names)

        def fired() -> bool:
            for name in sorted(waiting & self._prometheus.firing()):
                waiting.discard(name)
                self._say(f"{name} fires")
            return not waiting

        try:
            eventually(fired, "alerts fire", _FIRES_S, 1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted(waiting)}") from None

    def end(self) -> None:
        """Wait until none of the alerts of this test fires."""
        try:
            eventually(lambda: not self._prometheus.firing() & _ALERTS, "no alert fires", _FIRES_S, 1)
        except AssertionError as error:
            raise AssertionError(f"{error}: {sorted(self._prometheus.firing())}") from None
        self._say("all have ended")


@pytest.fixture(scope="module")
def own_kafka(cluster: Cluster, images: Images, operator: Installation) -> Iterator[Kafka]:
    """A broker in a namespace of its own."""
    cluster.recreate_namespace(_NAMESPACE)
    with Kafka(cluster, _NAMESPACE, images.broker) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def verification(cluster: Cluster, own_kafka: Kafka, images: Images) -> Iterator[Verification]:
    """An application with expensive records, that may not have more than its two workers."""
    with Verification(cluster, own_kafka, images, _USUAL) as verification:
        app = verification.app
        bounds = {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2, "targetLag": "10s", "stabilization": "1m"}
        app.apply(verification.spec(env=[{"name": "VERIFIER_COST", "value": f"{_COST_S}"}], autoscaling=bounds))
        app.settled(2, 180, images.verifier("v1"))
        yield verification
        app.kubectl("delete", "sapp", app.name)


@pytest.fixture(scope="module")
def alerts(
    verification: Verification, place: Place, images: Images, operator: Installation, say: Callable[[str], None]
) -> Iterator[Alerts]:
    """A Prometheus with the rules of the chart."""
    images.build_prometheus(place)
    prometheus = PrometheusPod(
        place.cluster, _NAMESPACE, operator.namespace, images.prometheus, verification.app.name, 2
    )
    prometheus.start()
    yield Alerts(prometheus, say)
    prometheus.stop()


@pytest.fixture(autouse=True)
def calm(alerts: Alerts) -> None:
    """Begin with no alert."""
    alerts.end()


def test_overload_fires_until_it_is_over(alerts: Alerts, verification: Verification) -> None:
    """More records than its workers can process: lag grows, and the autoscaler may not choose more workers."""
    verification.change_rate(_TOO_MUCH)
    try:
        alerts.fire("LagGrowing")
        verification.change_rate(2.5 * _USUAL)  # growing no more, but too much still
        alerts.fire("AutoscalerAtMax")
    finally:
        verification.change_rate(_USUAL / 3)
    alerts.end()


def test_worker_without_a_node_fires_until_there_is_one(
    alerts: Alerts, verification: Verification, cluster: Cluster
) -> None:
    """A worker's volume is on a node that takes no pods: it is missing, and the cause is told."""
    app = verification.app
    victim = app.pods()[0]
    node = victim["spec"]["nodeName"]
    cluster.kubectl("cordon", node)
    try:
        app.kubectl("delete", "pod", victim["metadata"]["name"])
        alerts.fire("WorkerDown", "StreamAppDegraded")
    finally:
        cluster.kubectl("uncordon", node)
    alerts.end()


def test_failed_revision_fires_until_there_is_a_good_one(
    alerts: Alerts, verification: Verification, images: Images
) -> None:
    """An image whose workers cannot start is rolled back."""
    app = verification.app
    app.patch(image=images.verifier("bad"))
    try:
        alerts.fire("RolledBack")
    finally:
        app.patch(image=images.verifier("v1"))
    alerts.end()


def test_operator_that_is_gone_fires_until_it_is_back(alerts: Alerts, operator: Installation) -> None:
    """Without its pods nobody leads."""
    operator.remove()
    try:
        alerts.fire("OperatorDown")
    finally:
        operator.bring_back()
    alerts.end()
