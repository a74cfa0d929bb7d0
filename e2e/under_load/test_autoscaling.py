"""The autoscaler against load on a cluster: few rescales, lag within the target, and every record counts once.

A worker sleeps for each record, so that few records per second are much for it, and little for the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from e2e.cluster import Cluster, Object
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.pauses import Event
from e2e.measuring.traffic import PARTITIONS
from e2e.measuring.verification import Verification

pytestmark = pytest.mark.skipif(not os.environ.get("E2E_UNDER_LOAD"), reason="only `make e2e-load` runs this")

_NAMESPACE = "millpond-e2e-autoscaling"
#: A worker spends so long on an order in each of the two sub-topologies.
_COST_S = 0.02
#: Orders per second: at the usual rate two workers are busy for less than half of their time; for the others, two and
#: then four are too few.
_USUAL, _MUCH, _MORE = 18.0, 54.0, 108.0
_TARGET_LAG_S = 10.0
_CONVERGED_S = 210.0
_MOST_STEPS = 3
_SPIKE_S = 80.0
_AUTOSCALING = {
    "mode": "Auto",
    "minReplicas": 2,
    "maxReplicas": PARTITIONS,
    "targetLag": f"{_TARGET_LAG_S:g}s",
    "stabilization": "1m",
    "rescalesPerDay": 8,
}


class Trace:
    """The number of workers over the time of one load trace."""

    def __init__(self, verification: Verification, say: Callable[[str], None]) -> None:
        self._verification = verification
        self._say = say
        self._begin = time.monotonic()
        self.workers = [self._now()["currentReplicas"]]
        self.rate = _USUAL

    @property
    def steps(self) -> int:
        """How often the number of workers changed."""
        return len(self.workers) - 1

    def load(self, rate: float) -> None:
        """Change the load to this number of orders per second."""
        self._verification.change_rate(rate)
        self.rate = rate
        self._say(f"{self._elapsed():4.0f} s: {rate:g} orders per second")

    def look(self, app: Object) -> Object:
        """Note a change of the number of workers; return the state of the autoscaler."""
        found: Object = app["status"]["autoscaling"]
        if found["currentReplicas"] != self.workers[-1]:
            self.workers.append(found["currentReplicas"])
            self._say(f"{self._elapsed():4.0f} s: {self.workers[-1]} workers. {found['message']}")
        return found

    def until_converged(self, holds: Callable[[int], bool]) -> None:
        """Wait for a number of workers that run all tasks, and for lag within the target."""
        app = self._verification.app

        def converged(seen: Object) -> bool:
            state = self.look(seen)
            return (
                holds(state["currentReplicas"])
                and state["recommendedReplicas"] == state["currentReplicas"]
                and seen["status"].get("replicas") == seen["status"].get("readyReplicas") == state["currentReplicas"]
                and seen["status"].get("phase") == "Running"
                and self._verification.lag() <= self.rate * _TARGET_LAG_S
            )

        app.until(converged, "the number of workers fits, and lag is within the target", _CONVERGED_S)
        self._say(f"{self._elapsed():4.0f} s: lag {self._verification.lag()}, {self.workers} workers")

    def for_(self, seconds: float) -> None:
        """Look on for a while."""
        since = time.monotonic()

        def over(seen: Object) -> bool:
            self.look(seen)
            return time.monotonic() - since >= seconds

        self._verification.app.until(over, "the time is over", seconds + 10)

    def _now(self) -> Object:
        found: Object = self._verification.app.object()["status"]["autoscaling"]
        return found

    def _elapsed(self) -> float:
        return time.monotonic() - self._begin


@pytest.fixture(scope="module")
def own_kafka(cluster: Cluster, images: Images, operator: Installation) -> Iterator[Kafka]:
    """A broker in a namespace of its own."""
    cluster.recreate_namespace(_NAMESPACE)
    with Kafka(cluster, _NAMESPACE, images.broker) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def verification(cluster: Cluster, own_kafka: Kafka, images: Images, events: list[Event]) -> Iterator[Verification]:
    """An application with expensive records, under the usual load of two workers."""
    with Verification(cluster, own_kafka, images, _USUAL) as verification:
        verification.meter.events = events
        app = verification.app
        cost = [{"name": "VERIFIER_COST", "value": f"{_COST_S}"}]
        app.apply(verification.spec(env=cost, autoscaling=_AUTOSCALING))
        app.settled(2, 180, images.verifier("v1"))
        app.until(lambda seen: bool(seen["status"].get("autoscaling")), "the autoscaler looks", 60)
        verification.meter.learn()
        yield verification
        app.kubectl("delete", "sapp", app.name)


def test_a_step_is_answered_by_enough_workers(verification: Verification, say: Callable[[str], None]) -> None:
    """Three times the load from now on: there are soon enough workers, and lag falls below the target."""
    trace = Trace(verification, say)
    with verification.meter.event("autoscaling: step", 120):
        trace.load(_MUCH)
        trace.until_converged(lambda workers: workers > 2)
    assert trace.steps <= _MOST_STEPS, trace.workers
    assert max(trace.workers) <= PARTITIONS


def test_a_spike_is_worked_off(verification: Verification, say: Callable[[str], None]) -> None:
    """Half as much again for a while: lag falls below the target, and no worker comes and goes twice."""
    trace = Trace(verification, say)
    with verification.meter.event("autoscaling: spike", 120):
        trace.load(_MORE)
        trace.for_(_SPIKE_S)
        trace.load(_MUCH)
        trace.until_converged(lambda workers: workers > 2)
    assert trace.steps <= _MOST_STEPS, trace.workers
    assert max(trace.workers) <= PARTITIONS


def test_every_record_counts_once_after_all_rescales(verification: Verification) -> None:
    """Output and changelogs equal the expected records of the input."""
    wrong = verification.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:50])
