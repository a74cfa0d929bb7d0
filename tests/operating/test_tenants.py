"""Applications with the same id, in one or two namespaces: each has its own Kafka cluster and cannot see others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.cluster.api import ApiFailure, Object
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.waiting import sleep, wait_for
from tests.operating.operators import grant_rights
from tests.operating.scene import condition_in
from tests.operating.stage import App, Stage
from tests.operating.world import World

pytestmark = pytest.mark.timeout(600)

TASKS = 4
SHORT, SERVICE, FULL = "kafka.shop:9092", "kafka.shop.svc:9092", "kafka.shop.svc.cluster.local:9092"
OUTSIDE = "broker.example.com:9092"


class Tenant(App):
    """A StreamApp in one of two namespaces, whose conditions are recorded."""

    def __init__(self, stage: Stage, namespace: str, name: str, servers: str, **spec: object) -> None:
        super().__init__(stage, name)
        self.namespace = namespace
        self.spec |= {
            "applicationId": "pay",
            "kafka": {"bootstrapServers": servers},
            "rollout": {"minReady": "0s"},
        } | spec

    def apply(self, **spec: object) -> None:
        self.spec |= spec
        metadata = {"name": self.name, "namespace": self.namespace}
        self.stage.api.apply(
            {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": self.spec}
        )

    def delete(self) -> None:
        self.stage.api.delete("StreamApp", self.namespace, self.name)

    def find(self) -> Object | None:
        return self.stage.api.find("StreamApp", self.namespace, self.name)

    def now(self, type: str) -> Object:
        """Return a condition."""
        return condition_in((self.find() or {}).get("status", {}), type)

    def annotate(self, key: str, value: str) -> None:
        patch = {"metadata": {"annotations": {f"millpond.dev/{key}": value}}}
        self.stage.api.patch("StreamApp", self.namespace, self.name, patch)

    def pods(self) -> list[Object]:
        return self.stage.api.list("Pod", self.namespace, f"millpond.dev/app={self.name}")

    def is_ready(self) -> bool:
        return self.now("Ready").get("status") == "True"

    def await_ready(self) -> None:
        wait_for(
            lambda: self.is_ready() and self.status().get("tasks") == f"{TASKS}/{TASKS}",
            f"{self.name} is ready",
            otherwise=lambda: f"{self.find()}\n{self.stage.operator.tail(30)}",
        )

    def await_taken(self) -> str:
        """Wait until it is rejected because of its id; return the message."""

        def refused() -> bool:
            ready, degraded = self.now("Ready"), self.now("Degraded")
            return (ready.get("status"), degraded.get("status"), degraded.get("reason")) == (
                "False",
                "True",
                "ApplicationIdTaken",
            )

        wait_for(refused, f"{self.name} is refused", otherwise=self.find)
        return str(self.now("Degraded")["message"])


@pytest.fixture
def stage(world: World, tmp_path) -> Iterator[Stage]:
    namespaces = [world.namespace("shop"), world.namespace("bank")]
    try:
        with contextlib.ExitStack() as stack:
            stage = Stage(world, namespaces[0], tmp_path, {"WATCH_NAMESPACES": ",".join(namespaces)}, TASKS)
            stack.enter_context(stage)
            grant_rights(world.api, namespaces[0])
            other = Kubelets(
                world.background,
                world.server.admin,
                namespaces[1],
                operator_namespace=namespaces[0],
                beside=stage.kubelets,
            )
            stack.enter_context(other)
            stage.other = namespaces[1]
            for address in (SHORT, SERVICE, FULL, OUTSIDE):
                stage.kubelets.kafkas[address] = "K"
            stage.start()
            yield stage
            log = stage.operator.tail(1_000_000)
            assert "Traceback" not in log, log[log.index("Traceback") :][:8000]
            assert not stage.violations()
            assert not other.violations()
    finally:
        for namespace in namespaces:
            world.api.delete("Namespace", None, namespace)


@pytest.fixture
def first(stage: Stage) -> Tenant:
    """A running application."""
    made = Tenant(stage, stage.namespace, "first", SHORT)
    made.apply()
    made.await_ready()
    return made


def owners(stage: Stage) -> set[str]:
    """Return the owners of the tasks of an application id on a Kafka cluster."""
    return set(stage.kubelets.streams_on("K", "pay").owners.values())


FIRST = {"first-0", "first-1"}


def undisturbed(stage: Stage, first: Tenant) -> None:
    """Check that the first application has all its tasks and never lost one to another."""
    streams = stage.kubelets.streams_on("K", "pay")
    assert owners(stage) == FIRST
    assert set(streams.running()) == {f"0_{number}" for number in range(TASKS)}
    assert not streams.fenced
    assert first.is_ready()


def test_two_spellings_of_one_kafka_do_not_share_tasks(stage: Stage, first: Tenant) -> None:
    """The second StreamApp is rejected with a reason, its workers get no tasks, and the first is not affected."""
    second = Tenant(stage, stage.namespace, "second", SERVICE)
    second.apply()
    told = second.await_taken()
    assert "StreamApp 'first' runs application 'pay' on the same Kafka" in told
    assert "another spec.applicationId" in told
    assert second.now("Stalled")["status"] == "True"
    undisturbed(stage, first)
    assert first.find()["status"]["kafka"]["clusterId"] == "K"
    assert "kafka" not in second.find()["status"]
    assert "failed" not in second.find()["status"], "another revision would fare no better"


def test_deleting_the_second_application_leaves_the_first_served(stage: Stage, first: Tenant) -> None:
    """A worker that dies afterwards gets its tasks back within seconds, and the first application stays reported."""
    second = Tenant(stage, stage.namespace, "second", OUTSIDE)
    second.apply()
    second.await_taken()
    wait_for(lambda: second.pods(), "its workers are there")
    second.delete()
    wait_for(lambda: second.find() is None and not second.pods(), "it is gone")
    undisturbed(stage, first)
    streams = stage.kubelets.streams_on("K", "pay")
    lost = {task for task, worker in streams.running().items() if worker == "first-0"}
    stage.kubelets.kill(stage.namespace, "first-0")
    wait_for(lambda: lost <= {pause.task for pause in streams.pauses}, "they run again", 15, otherwise=first.status)
    assert {pause.before for pause in streams.pauses} == {"first-0"}
    first.await_ready()


def test_paused_application_that_is_refused_goes_on_to_say_why(stage: Stage, first: Tenant) -> None:
    """Its condition says why it has no output, instead of repeating the last one."""
    second = Tenant(stage, stage.namespace, "second", SERVICE)
    second.apply()
    second.await_taken()
    second.annotate("reconcile", "paused")
    wait_for(lambda: second.now("Progressing").get("reason") == "Paused", "the pause is told", otherwise=second.find)
    sleep(20)
    assert "on the same Kafka" in second.await_taken()
    undisturbed(stage, first)


def test_refused_application_starts_when_the_id_is_free(stage: Stage, first: Tenant) -> None:
    """It starts with its existing workers and owns the id from then on."""
    second = Tenant(stage, stage.namespace, "second", OUTSIDE)
    second.apply()
    second.await_taken()
    undisturbed(stage, first)
    first.delete()
    second.await_ready()
    assert second.find()["status"]["kafka"]["clusterId"] == "K"
    assert second.now("Degraded")["status"] == "False"


def test_claims_outlive_the_operator(stage: Stage, first: Tenant) -> None:
    """After a kill and a restart the conditions are the same, and neither application is disturbed."""
    second = Tenant(stage, stage.namespace, "aaa", OUTSIDE)
    second.apply()
    second.await_taken()
    before = first.find()["status"]["kafka"]
    stage.world.background.call(stage.crash())
    stage.operator.await_reconciling()
    wait_for(lambda: first.status().get("tasks") == f"{TASKS}/{TASKS}", "the first one is served")
    second.await_taken()
    undisturbed(stage, first)
    assert first.find()["status"]["kafka"] == before


def test_other_tenants_are_refused_without_learning_of_whom(stage: Stage, first: Tenant) -> None:
    """They learn neither the name nor the namespace; where the address is enough, no worker is started."""
    for name, servers in (("second", FULL), ("third", OUTSIDE)):
        other = Tenant(stage, stage.other, name, servers)
        other.apply()
        told = other.await_taken()
        assert "Another application with the id 'pay' runs on the same Kafka" in told
        text = str(other.find()["status"])
        assert "first" not in text
        assert stage.namespace not in text
        undisturbed(stage, first)
        assert "second" not in str(first.find()["status"])


def test_address_that_is_taken_for_sure_starts_no_worker(stage: Stage) -> None:
    """No other object is created for it either."""
    mine = Tenant(stage, stage.namespace, "first", SERVICE)
    mine.apply()
    mine.await_ready()
    other = Tenant(stage, stage.other, "second", FULL)
    other.apply()
    other.await_taken()
    assert not other.pods()
    assert not stage.api.find("StatefulSet", stage.other, "second")


def test_one_short_name_in_two_namespaces_is_two_kafkas(stage: Stage) -> None:
    """Names, ids and addresses are the same, and both run."""
    both = [Tenant(stage, namespace, "delays", "kafka:9092") for namespace in (stage.namespace, stage.other)]
    for each in both:
        each.apply()
    for each in both:
        each.await_ready()
    clusters = [each.find()["status"]["kafka"]["clusterId"] for each in both]
    assert clusters == [f"kafka-of-{each.namespace}" for each in both]


def test_one_id_on_two_kafkas_of_one_namespace_is_two_applications(stage: Stage, first: Tenant) -> None:
    """Each has its own tasks and is deleted without affecting the other."""
    stage.kubelets.kafkas["other:9092"] = "L"
    second = Tenant(stage, stage.namespace, "second", "other:9092")
    second.apply()
    second.await_ready()
    undisturbed(stage, first)
    assert set(stage.kubelets.streams_on("L", "pay").owners.values()) == {"second-0", "second-1"}
    second.delete()
    wait_for(lambda: second.find() is None, "it is gone")
    undisturbed(stage, first)


def test_nobody_keeps_an_id_that_their_workers_never_proved(stage: Stage) -> None:
    """A StreamApp that cannot start reserves an id for two minutes, and is rejected if it starts later."""
    squatter = Tenant(stage, stage.other, "squatter", FULL, image="nothing:1")
    squatter.apply()
    wait_for(lambda: squatter.pods(), "it tries to start")
    mine = Tenant(stage, stage.namespace, "first", SERVICE)
    mine.apply()
    assert "is about to run" in mine.await_taken()
    wait_for(mine.is_ready, "it runs", 180, otherwise=mine.status)
    squatter.apply(image="delays:1")
    squatter.await_taken()
    undisturbed(stage, mine)


def test_address_that_leads_to_another_kafka_fails_a_rolling_update(stage: Stage, first: Tenant) -> None:
    """Its first worker is rejected with a reason and rolled back; the others keep running on the old cluster."""
    stage.kubelets.kafkas["moved:9092"] = "L"
    first.apply(kafka={"bootstrapServers": "moved:9092"})
    wait_for(lambda: "failed" in first.status(), "it failed", 120, otherwise=first.status)
    failed = first.status()["failed"]
    assert failed["reason"] == "OtherKafka"
    assert "reaches Kafka cluster L" in failed["message"]
    assert "rollout.strategy to Recreate" in failed["message"]
    wait_for(lambda: set(stage.kubelets.streams_on("K", "pay").running()) and owners(stage) <= FIRST, "it goes back")
    wait_for(
        lambda: len(stage.kubelets.streams_on("K", "pay").running()) == TASKS and first.status()["workers"] == "2/2",
        "it runs as before",
        otherwise=first.status,
    )
    assert first.find()["status"]["kafka"]["clusterId"] == "K"
    assert not stage.kubelets.streams_on("L", "pay").owners


def test_recreated_application_may_move_to_another_kafka(stage: Stage, first: Tenant) -> None:
    """All its workers stop before; then it holds the id on the new cluster, and the id is free on the old one."""
    stage.kubelets.kafkas["moved:9092"] = "L"
    first.apply(kafka={"bootstrapServers": "moved:9092"}, rollout={"minReady": "0s", "strategy": "Recreate"})
    wait_for(
        lambda: (first.status().get("kafka") or {}).get("clusterId") == "L", "it moved", 120, otherwise=first.status
    )
    first.await_ready()
    second = Tenant(stage, stage.other, "second", OUTSIDE)
    second.apply()
    second.await_ready()


def test_deletion_waits_for_nobody_else(stage: Stage, first: Tenant) -> None:
    """Another application with the id does not delay it, and only its own topics and groups are deleted."""
    guarded = {"kafka": "Delete"}
    here = Tenant(stage, stage.namespace, "second", OUTSIDE, deletion=guarded)
    elsewhere = Tenant(stage, stage.other, "third", "kafka:9092", deletion=guarded)
    for each in (here, elsewhere):
        each.apply()
    here.await_taken()
    elsewhere.await_ready()
    for each in (here, elsewhere):
        each.delete()
        wait_for(lambda each=each: each.find() is None, f"{each.name} is gone", otherwise=each.find)
    assert stage.kubelets.streams_on("K", "pay").cleaned_up == 0
    assert stage.kubelets.streams_on(f"kafka-of-{stage.other}", "pay").cleaned_up == 1
    undisturbed(stage, first)


def test_namespace_goes_though_another_one_has_the_id(stage: Stage, first: Tenant) -> None:
    """A finalizer depends on nothing outside its namespace."""
    other = Tenant(stage, stage.other, "second", "kafka:9092", deletion={"kafka": "Delete"})
    other.apply()
    other.await_ready()
    stage.api.delete("Namespace", None, stage.other)
    wait_for(lambda: stage.api.find("Namespace", None, stage.other) is None, "it is gone", 120, otherwise=other.find)
    undisturbed(stage, first)


def test_pod_with_the_service_account_alone_is_no_worker(stage: Stage, first: Tenant) -> None:
    """The right to create pods is not enough to get tasks: a worker's pod belongs to the StatefulSet."""
    template = stage.api.get("Pod", stage.namespace, "first-0")
    intruder = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "intruder-0", "namespace": stage.namespace, "labels": {"millpond.dev/revision": "r1"}},
        "spec": {
            key: value for key, value in template["spec"].items() if key not in {"nodeName", "hostname", "volumes"}
        }
        | {"volumes": [each for each in template["spec"]["volumes"] if "persistentVolumeClaim" not in each]},
    }
    intruder["spec"]["containers"][0]["volumeMounts"] = []
    stage.api.create(intruder)
    workers = stage.kubelets.workers
    wait_for(
        lambda: "intruder-0" in (there := workers(stage.namespace)) and there["intruder-0"].started,
        "it runs",
        otherwise=first.find,
    )
    assert workers(stage.namespace)["intruder-0"].refusal is not None
    assigned = stage.api.get("StreamAssignment", stage.namespace, "first")["spec"]["workers"]
    assert [each["name"] for each in assigned] == ["first-0", "first-1"]
    undisturbed(stage, first)
    with contextlib.suppress(ApiFailure):
        stage.api.delete("Pod", stage.namespace, "intruder-0", gracePeriodSeconds=0)


def test_changed_credentials_are_told_until_workers_restart(stage: Stage, first: Tenant) -> None:
    """The condition says how many workers, and the annotation that restarts them ends it."""
    for worker in stage.kubelets.workers(stage.namespace).values():
        worker.credentials_changed = True
    wait_for(lambda: first.now("CredentialsOutdated").get("status") == "True", "it is told", otherwise=first.status)
    told = first.now("CredentialsOutdated")
    assert told["reason"] == "CredentialsChanged"
    assert "millpond.dev/restartedAt" in told["message"]
    assert first.is_ready()
    events = [each for each in stage.api.list("Event", stage.namespace) if each["reason"] == "CredentialsChanged"]
    assert [each["type"] for each in events] == ["Warning"]
    first.annotate("restartedAt", "2026-01-02")
    wait_for(lambda: not first.now("CredentialsOutdated"), "workers restarted", 120, otherwise=first.status)
    first.await_ready()


def test_missing_status_is_proven_again(stage: Stage, first: Tenant) -> None:
    """A claim that was removed from the status is written again, and no task moves."""
    stage.api.patch("StreamApp", stage.namespace, "first", {"status": {"kafka": None}}, subresource="status")
    wait_for(lambda: "kafka" in first.find()["status"], "it is back", otherwise=first.find)
    undisturbed(stage, first)
