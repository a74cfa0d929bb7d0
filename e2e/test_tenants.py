"""Two StreamApps with one id on one Kafka, under two addresses: the second one does not disturb the first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.cluster import Cluster, Object, eventually
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.measuring.pauses import Event
from e2e.measuring.verification import Verification
from e2e.streamapp import StreamApp, condition
from tests.support.measuring.figures import Figures

_NAMESPACE = "millpond-e2e-tenants"
_ALIAS = "broker-by-another-name"
_WISHED_PAUSE_S = 5.0


@pytest.fixture(scope="module")
def own_kafka(cluster: Cluster, images: Images, operator: Installation) -> Iterator[Kafka]:
    """A broker in a namespace of its own, with the Service name of the other tests' broker."""
    cluster.recreate_namespace(_NAMESPACE)
    with Kafka(cluster, _NAMESPACE, images.broker) as kafka:
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": _ALIAS, "namespace": _NAMESPACE},
                "spec": {"selector": {"app": "kafka"}, "ports": [{"name": "kafka", "port": 9092}]},
            }
        )
        yield kafka


@pytest.fixture(scope="module")
def verification(cluster: Cluster, own_kafka: Kafka, images: Images, events: list[Event]) -> Iterator[Verification]:
    """The first application, with two workers."""
    with Verification(cluster, own_kafka, images) as verification:
        verification.meter.events = events
        verification.app.apply(verification.spec())
        verification.app.settled(2, 180, images.verifier("v1"))
        verification.meter.learn()
        yield verification
        verification.app.kubectl("delete", "sapp", verification.app.name)


@pytest.fixture(params=[f"kafka.{_NAMESPACE}.svc.cluster.local:9092", f"{_ALIAS}.{_NAMESPACE}.svc:9092"])
def second(request: pytest.FixtureRequest, verification: Verification, cluster: Cluster) -> Iterator[StreamApp]:
    """Another StreamApp with the same id, which reaches the same Kafka under a longer name or an unrelated one."""
    app = StreamApp(cluster, _NAMESPACE, f"{verification.app.name}-again")
    app.apply(verification.spec(applicationId=verification.app.name, kafka={"bootstrapServers": request.param}))
    yield app
    app.kubectl("delete", "sapp", app.name, "--ignore-not-found")
    eventually(lambda: not app.exists() and not app.pods(), "the second one is gone", 120)


def test_second_application_on_one_kafka_is_refused(
    verification: Verification, second: StreamApp, figures: Figures
) -> None:
    """Its condition has the cause, its workers get no tasks, and those of the first one keep theirs."""
    first = verification.app
    owned = _owners(first)
    with verification.meter.event("another StreamApp with the same id"):
        refused = second.until(_is_refused, "the second one is refused", 180)
        verification.meter.rest(60)
    assert first.name in condition(refused, "Degraded")["message"]
    assert "kafka" not in refused["status"]
    assert _owners(first) == owned
    assert condition(first.object(), "Ready")["status"] == "True"
    _note_pause(verification, figures)


def test_deleting_the_second_application_disturbs_nobody(
    verification: Verification, second: StreamApp, figures: Figures
) -> None:
    """The first one stays served: the tasks of a worker that dies afterwards are taken over."""
    first = verification.app
    second.until(_is_refused, "the second one is refused", 180)
    with verification.meter.event("the second StreamApp deleted"):
        second.kubectl("delete", "sapp", second.name)
        eventually(lambda: not second.exists() and not second.pods(), "it is gone", 120)
        verification.meter.rest(60)
    first.settled(2, 60)
    _note_pause(verification, figures)
    victim = first.pods()[0]["metadata"]["name"]
    with verification.meter.event("worker killed after that"):
        first.kubectl("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
        first.settled(2, 120)


def test_no_record_is_lost_or_doubled_beside_a_second_application(verification: Verification) -> None:
    """The output equals the expected records of the input."""
    assert verification.sent > 1_000
    wrong = verification.findings()
    assert not wrong, f"{len(wrong)} findings:\n" + "\n".join(wrong[:50])


def _is_refused(app: Object) -> bool:
    degraded, ready = condition(app, "Degraded"), condition(app, "Ready")
    return degraded.get("reason") == "ApplicationIdTaken" and ready.get("status") == "False"


def _owners(app: StreamApp) -> set[str]:
    assigned = app.kubectl("get", "sasg", app.name, "-o", "jsonpath={range .spec.workers[*]}{.name} {end}")
    return set(assigned.split())


def _note_pause(verification: Verification, figures: Figures) -> None:
    event = verification.meter.events[-1]
    figures.note(f"{event.name}: longest pause of a task", event.longest, "s", _WISHED_PAUSE_S)
