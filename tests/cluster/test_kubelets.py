"""Simulated nodes and workers: what the operator is tested against has to behave like the real thing."""

from __future__ import annotations

import collections
import ssl
from datetime import timedelta

import pytest

from millpond.protocol import RefusalCode, TaskState
from millpond_operator import resources
from millpond_operator.assignment import AssignmentOptions
from millpond_operator.coordinator import CoordinatorServer, EngineOptions, Identity
from tests.cluster.nodes.images import Image, topology
from tests.cluster.nodes.kubelets import Kubelets
from tests.support.kafka import eventually

TASKS = 6
IMAGE = Image(topology(TASKS))


class Stage:
    """One application and its coordinator, without an operator."""

    def __init__(self, api, api_server, background, namespace):
        self.api = api
        self.namespace = namespace
        self._scope = f"{namespace}/delays"
        self._background = background
        self._ca = api_server.authority.ca_file.read_text()
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._host = f"millpond-coordinator.{namespace}.svc"
        self._tls.load_cert_chain(api_server.authority.server(f"coordinator-{namespace}", self._host))
        self.coordinator = CoordinatorServer(authenticator=self._whose)
        self.kubelets = Kubelets(background, api_server.admin, namespace, operator_namespace=namespace)
        self.kubelets.images["delays:1"] = IMAGE

    def __enter__(self):
        options = EngineOptions(assignment=AssignmentOptions(1, 2, 10_000), session_timeout=timedelta(seconds=2))
        self._background.call(self.coordinator.start(ssl_context=self._tls))
        self._background.call(self.coordinator.add("delays", options, namespace=self._scope))
        self.api.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "coordinator",
                    "namespace": self.namespace,
                    "labels": {"kubernetes.io/service-name": "millpond-coordinator"},
                },
                "addressType": "IPv4",
                "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": True}}],
                "ports": [{"name": "coordinator", "port": self.coordinator.port, "protocol": "TCP"}],
            }
        )
        self.kubelets.__enter__()
        return self

    def __exit__(self, *error):
        self.kubelets.__exit__(*error)
        self._background.call(self.coordinator.stop())
        assert not self.kubelets.violations()

    async def _whose(self, token, _peer=""):
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}}
        body = {**review, "spec": {"token": token, "audiences": ["millpond-coordinator"]}}
        status = (await self.kubelets.api.create(body))["status"]
        if not status.get("authenticated"):
            return None
        (pod,) = status["user"]["extra"]["authentication.kubernetes.io/pod-name"]
        return Identity(worker=pod, application="delays", namespace=self._scope)

    def view(self):
        """The coordinator's view of the application."""

        async def view():
            return self.coordinator.application("delays", self._scope).view()

        return self._background.call(view())

    def pin(self, hash):
        """Admit only this topology."""

        async def pin():
            self.coordinator.application("delays", self._scope).pin(hash)

        self._background.call(pin())

    def apply(self, replicas=2, **spec):
        """Apply what an operator would; return the StatefulSet."""
        given = {"image": "delays:1", "topology": "app:delays", "kafka": {"bootstrapServers": "kafka:9092"}, **spec}
        metadata = {"name": "delays", "namespace": self.namespace}
        kind = {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp"}
        app = resources.parse(self.api.apply({**kind, "metadata": metadata, "spec": given}))
        surroundings = resources.Surroundings(f"https://{self._host}:7070", self._ca, 1, self.namespace)
        template = resources.pod_template(app, surroundings)
        stateful_set = resources.stateful_set(app, template, resources.revision_of(template), replicas)
        for manifest in [*resources.children(app, surroundings), stateful_set]:
            self.api.apply(manifest)
        return app

    def story(self):
        """What one would look at if something does not happen: pods, claims, and events."""
        found = [
            (each["kind"], each["metadata"]["name"], each["metadata"].get("deletionTimestamp"), each.get("status"))
            for kind in ("StatefulSet", "Pod", "PersistentVolumeClaim")
            for each in self.api.list(kind, self.namespace)
        ]
        return [*found, *(each["message"] for each in self.api.list("Event", self.namespace))]

    @property
    def streams(self):
        return self.kubelets.streams(self.namespace, "delays")

    def pod(self, name):
        return self.api.get("Pod", self.namespace, name)

    def container(self, name):
        return self.pod(name).get("status", {}).get("containerStatuses", [{}])[0]

    def ready(self, name):
        return self.container(name).get("ready", False)

    def waits_for(self, name, reason):
        def waits():
            return (self.container(name).get("state", {}).get("waiting") or {}).get("reason") == reason

        eventually(lambda: self.api.find("Pod", self.namespace, name) and waits(), f"{name} is {reason}")
        return self.container(name)

    def settled(self, workers=2):
        """Wait until all tasks run, spread evenly over so many workers, with a caught-up copy each."""

        def settled():
            running = self.streams.running()
            view = self.view()
            copies = [
                report
                for member in view.members
                for report in member.tasks.values()
                if report.role != "active" and report.state is TaskState.RUNNING
            ]
            return (
                view.active == view.owners == running
                and sorted(collections.Counter(running.values()).values()) == [TASKS // workers] * workers
                and (workers == 1 or len(copies) == TASKS)
            )

        eventually(settled, f"{TASKS} tasks run on {workers} workers")


@pytest.fixture
def stage(api, api_server, background, namespace, crds):
    with Stage(api, api_server, background, namespace) as stage:
        yield stage


def test_pods_run_workers_that_share_the_tasks(stage):
    """Over TLS, each with its own token, on its own node, with the environment that Kubernetes provides."""
    stage.apply()
    stage.settled()
    for name in ("delays-0", "delays-1"):
        eventually(lambda name=name: stage.ready(name), f"{name} is ready")
    assert len({stage.pod(name)["spec"]["nodeName"] for name in ("delays-0", "delays-1")}) == 2
    members = {each.worker: each for each in stage.view().members}
    revision = stage.pod("delays-0")["metadata"]["labels"]["millpond.dev/revision"]
    assert members["delays-0"].revision == revision
    assert members["delays-0"].address == f"http://delays-0.delays.{stage.namespace}.svc:8081"

    def is_bound():
        claim = stage.api.get("PersistentVolumeClaim", stage.namespace, "state-delays-0")
        return claim["status"]["phase"] == "Bound"

    eventually(is_bound, "its claim has a volume")


def test_a_pod_that_is_deleted_hands_its_tasks_over_first(stage):
    """Tasks pause only for the hand-over, and the state waits for the next pod."""
    stage.apply()
    stage.settled()
    mine = [task for task, worker in stage.streams.running().items() if worker == "delays-1"]
    stage.streams.pauses.clear()
    uid = stage.pod("delays-1")["metadata"]["uid"]
    stage.api.delete("Pod", stage.namespace, "delays-1")
    eventually(lambda: {pause.task for pause in stage.streams.pauses} >= set(mine), "all tasks were handed over")
    assert {(pause.why, pause.after) for pause in stage.streams.pauses[: len(mine)]} == {("released", "delays-0")}, (
        mine,
        stage.streams.pauses,
    )
    assert not stage.streams.fenced
    eventually(
        lambda: (
            (stage.api.find("Pod", stage.namespace, "delays-1") or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
        ),
        "a new pod took its place",
    )
    stage.settled()


def test_killed_worker_restarts_and_its_tasks_continue(stage):
    """The pod stays; its status counts the restart."""
    stage.apply()
    stage.settled()
    stage.streams.pauses.clear()
    stage.kubelets.kill(stage.namespace, "delays-0")
    eventually(lambda: stage.container("delays-0")["restartCount"] == 1, "its container started again")
    assert stage.container("delays-0")["lastState"]["terminated"]["exitCode"] == 137
    stage.settled()
    assert {pause.why for pause in stage.streams.pauses} >= {"died"}


def test_frozen_worker_loses_its_tasks_and_notices(stage):
    """Nothing is processed twice when it continues."""
    stage.apply()
    stage.settled()
    stage.kubelets.freeze(stage.namespace, "delays-0")
    eventually(lambda: set(stage.streams.running().values()) == {"delays-1"}, "its tasks are the other's")
    eventually(lambda: len(stage.streams.running()) == TASKS, "all tasks run")
    assert stage.kubelets.workers(stage.namespace)["delays-0"].frozen
    stage.kubelets.thaw(stage.namespace, "delays-0")
    stage.settled()


def test_workers_of_another_topology_wait_for_admission(stage):
    """Their names in Kafka's metadata are not enough: those tasks were of another topology."""
    stage.kubelets.images["other:1"] = Image(topology(TASKS, hash="h2"))
    stage.apply()
    stage.settled()
    assert set(stage.streams.topologies.values()) == {"h1"}
    stage.pin("h1")
    # Else pods wait for the garbage collector to delete the claims of former ones: not for as long as it likes.
    kept = {"retentionPolicy": {"whenScaled": "Retain"}}
    stage.apply(replicas=0, state=kept)
    eventually(lambda: not stage.api.list("Pod", stage.namespace), "no pods")
    owners = dict(stage.streams.owners)
    stage.apply(image="other:1", state=kept)

    def refusals():
        return {name: each.refusal for name, each in stage.kubelets.workers(stage.namespace).items()}

    refused = dict.fromkeys(("delays-0", "delays-1"), RefusalCode.TOPOLOGY_MISMATCH)
    eventually(lambda: refusals() == refused, lambda: f"both are refused, and not {refusals()}; {stage.story()}")
    assert not stage.streams.running()
    assert stage.streams.owners == owners
    assert set(stage.streams.topologies.values()) == {"h1"}
    stage.pin("h2")
    stage.settled()
    assert set(stage.streams.topologies.values()) == {"h2"}
    stage.pin("h1")
    eventually(lambda: not stage.streams.running(), "they let go when they are let in no more")
    assert not any(worker.tasks for worker in stage.kubelets.workers(stage.namespace).values())


def test_pods_of_a_lost_node_stay_until_it_is_back(stage):
    """They are not ready, others take over their tasks, and deleting them takes the node."""
    stage.apply()
    stage.settled()
    node = stage.kubelets.node_of(stage.namespace, "delays-0")
    stage.kubelets.lose(node)
    eventually(lambda: len(stage.streams.running()) == TASKS, "all tasks run on the other one")
    ready = {each["type"]: each["status"] for each in stage.pod("delays-0")["status"]["conditions"]}["Ready"]
    assert ready == "False"
    stage.kubelets.evict(node)
    assert "deletionTimestamp" in stage.pod("delays-0")["metadata"]
    assert set(stage.streams.running().values()) == {"delays-1"}
    uid = stage.pod("delays-0")["metadata"]["uid"]
    stage.kubelets.recover(node)
    eventually(
        lambda: (
            (stage.api.find("Pod", stage.namespace, "delays-0") or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid
        ),
        "a new pod took its place",
    )
    stage.settled()


def test_pod_status_shows_why_it_does_not_run(stage, monkeypatch):
    """As kubelets write it."""
    monkeypatch.setattr("tests.cluster.nodes.pods._FIRST_BACKOFF_S", 60.0)  # what is looked at has to stay
    stage.kubelets.images["broken:1"] = Image(crash=("TopicError", "Topic 'flights' does not exist: create it."))
    stage.kubelets.images["waits:1"] = Image(trouble=("BrokerError", "No broker answers at kafka:9092."))
    stage.apply(replicas=1, image="unknown:1")
    assert "unknown:1" in stage.waits_for("delays-0", "ImagePullBackOff")["state"]["waiting"]["message"]

    def is_seen(stateful_set):
        return stateful_set["status"].get("observedGeneration") == stateful_set["metadata"]["generation"]

    def anew(**spec):
        stage.apply(replicas=1, **spec)
        eventually(lambda: is_seen(stage.api.get("StatefulSet", stage.namespace, "delays")), "pods are made like that")
        uid = stage.pod("delays-0")["metadata"]["uid"]
        stage.api.delete("Pod", stage.namespace, "delays-0")
        eventually(
            lambda: (
                (stage.api.find("Pod", stage.namespace, "delays-0") or {"metadata": {"uid": uid}})["metadata"]["uid"]
                != uid
            ),
            "a new pod",
        )

    anew(image="broken:1")
    container = stage.waits_for("delays-0", "CrashLoopBackOff")
    assert container["restartCount"] == 2
    assert '"TopicError"' in container["lastState"]["terminated"]["message"]
    anew(env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "one"}}}])
    assert stage.waits_for("delays-0", "CreateContainerConfigError")["state"]["waiting"]["message"] == (
        'secret "keys" not found'
    )
    anew(kafka={"bootstrapServers": "kafka:9092", "credentialsSecret": "delays-kafka"})
    stage.waits_for("delays-0", "ContainerCreating")
    eventually(lambda: any(e["reason"] == "FailedMount" for e in stage.api.list("Event", stage.namespace)), "an event")
    anew(pod={"nodeSelector": {"disk": "fast"}})
    eventually(
        lambda: any(
            each.get("reason") == "Unschedulable" for each in stage.pod("delays-0")["status"].get("conditions", ())
        ),
        "it fits on no node",
    )
    anew(image="waits:1")
    eventually(lambda: any(each.trouble for each in stage.view().members), "it says what it waits for")
    assert not stage.ready("delays-0")


def test_volumes_grow_and_are_deleted_with_their_claims(stage):
    """State on a volume is available to the next pod with its claim."""
    stage.apply(replicas=1)
    stage.settled(workers=1)
    claim = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    stage.api.patch("PersistentVolumeClaim", stage.namespace, "state-delays-0", claim)
    eventually(
        lambda: (
            stage.api.get("PersistentVolumeClaim", stage.namespace, "state-delays-0")["status"]["capacity"]
            == {"storage": "2Gi"}
        ),
        "the volume grew",
    )
    stage.api.delete("StatefulSet", stage.namespace, "delays")
    eventually(lambda: not stage.api.list("Pod", stage.namespace), "no pods")
    eventually(lambda: not stage.api.list("PersistentVolumeClaim", stage.namespace), "no volumes")


def test_cleanup_job_deletes_the_applications_topics(stage):
    """And succeeds."""
    app = stage.apply(replicas=1)
    stage.settled(workers=1)
    stage.api.delete("StatefulSet", stage.namespace, "delays")
    eventually(lambda: not stage.api.list("Pod", stage.namespace), "no pods")
    job = resources.cleanup_job(app)
    stage.api.apply(job)
    name = job["metadata"]["name"]
    eventually(lambda: stage.api.get("Job", stage.namespace, name)["status"].get("succeeded") == 1, "it is done")
    assert stage.streams.cleaned_up == 1
    assert not stage.streams.owners
