"""What people get wrong becomes one condition with a reason and the cure, and is over when it is cured.

All of it goes wrong at once, in one namespace with one operator, so that a test takes as long as the slowest of them.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from millpond.protocol import clock
from tests.cluster.api import Object
from tests.cluster.calls import Call
from tests.cluster.nodes.images import Image, topology
from tests.cluster.waiting import together
from tests.operating.scene import BASE, TASKS, Scene, condition_in, merged, scene_of

_GOOD = Image(topology(partitions=TASKS))
_QUIET_S = 4.0


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "bad-input") as made:
        yield made


def _nothing(_scene: Scene, _name: str) -> None:
    """Prepare nothing."""


def _good_image(scene: Scene, name: str) -> None:
    """Give the image a new name."""
    scene.apply(name, merged(BASE, {"image": "delays:1"}))


@dataclass(frozen=True)
class Mistake:
    """A mistake in a StreamApp or its surroundings.

    Attributes:
        reason: of the condition.
        says: what its message says, among other things: the cause, and what to do.
        spec: what is changed in a good specification.
        image: what is behind the image's name, if that is what is wrong.
        before: makes what has to be there before.
        cure: does what the message says.
    """

    reason: str
    says: tuple[str, ...]
    spec: Object = field(default_factory=dict)
    image: Image = _GOOD
    before: Callable[[Scene, str], None] = _nothing
    cure: Callable[[Scene, str], None] = _good_image


def _secret(scene: Scene, name: str, key: str) -> None:
    metadata = {"name": name, "namespace": scene.namespace}
    scene.api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {key: "x"}})


def _foreign(kind: str) -> Callable[[Scene, str], None]:
    labels = {"app": "somebody-elses"}
    container = {"name": "main", "image": "pause:1", "env": [{"name": "MILLPOND_APPLICATION_ID", "value": "none"}]}
    specs: dict[str, tuple[str, Object]] = {
        "StatefulSet": (
            "apps/v1",
            {
                "replicas": 0,
                "serviceName": "somebody-elses",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        ),
        "Service": ("v1", {"clusterIP": "None", "selector": labels, "ports": [{"port": 80}]}),
    }

    def make(scene: Scene, name: str) -> None:
        version, spec = specs[kind]
        metadata = {"name": name, "namespace": scene.namespace}
        scene.api.create({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})

    return make


def _foreign_account(scene: Scene, name: str) -> None:
    metadata = {"name": name, "namespace": scene.namespace}
    scene.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def _is_untouched(scene: Scene, kind: str, name: str) -> bool:
    metadata = scene.get(kind, name)["metadata"]
    return not metadata.get("labels") and not metadata.get("ownerReferences") and "deletionTimestamp" not in metadata


def _deleted(kind: str) -> Callable[[Scene, str], None]:
    def cure(scene: Scene, name: str) -> None:
        assert _is_untouched(scene, kind, name)
        scene.delete(kind, name)

    return cure


def _other_app(scene: Scene, name: str) -> None:
    spec = merged(BASE, {"applicationId": "orders", "kafka": {"bootstrapServers": "b:9092, a:9092"}})
    scene.apply(f"{name}-first", spec)
    scene.await_settled(f"{name}-first")


def _delete_other_app(scene: Scene, name: str) -> None:
    assert scene.settled(f"{name}-first")
    assert not scene.find("StatefulSet", name)
    scene.delete("StreamApp", f"{name}-first")


def _broker_is_back(scene: Scene, name: str) -> None:
    """Restart the simulated workers. Real ones would continue without that."""
    scene.kubelets.images[name] = _GOOD
    scene.kubelets.kill(scene.namespace, f"{name}-0")


MISTAKES = {
    "not-importable": Mistake(
        "ApplicationNotImportable",
        ("No module named 'aap'", "Correct spec.topology"),
        image=Image(
            _GOOD.topology, crash=("ApplicationError", "'aap:delays' cannot be imported: No module named 'aap'.")
        ),
    ),
    "topology-invalid": Mistake(
        "TopologyInvalid",
        ("has no source", "spec.image"),
        image=Image(_GOOD.topology, crash=("TopologyError", "Processor 'count' has no source.")),
    ),
    "configuration-invalid": Mistake(
        "ConfigurationInvalid",
        ("'fetch.mim.bytes' is no setting", "spec.config"),
        image=Image(_GOOD.topology, crash=("ConfigError", "'fetch.mim.bytes' is no setting.")),
    ),
    "wrong-topic": Mistake(
        "TopicInvalid",
        ("'flihgts' does not exist", "Create or correct the topic"),
        image=Image(_GOOD.topology, crash=("TopicError", "Topic 'flihgts' does not exist.")),
    ),
    "topic-waited-for": Mistake(
        "TopicInvalid",
        ("'flihgts' does not exist", "Create or correct the topic"),
        image=Image(_GOOD.topology, trouble=("TopicError", "Topic 'flihgts' does not exist.")),
        cure=_broker_is_back,
    ),
    "broker": Mistake(
        "BrokerUnreachable",
        ("kafka:9092 cannot be reached", "spec.kafka.bootstrapServers"),
        image=Image(_GOOD.topology, trouble=("BrokerError", "kafka:9092 cannot be reached.")),
        cure=_broker_is_back,
    ),
    "no-image": Mistake(
        "ImageNotPullable", ("'delays:nowhere' cannot be pulled", "correct spec.image"), {"image": "delays:nowhere"}
    ),
    "no-millpond": Mistake(
        "ContainerCannotStart",
        ('exec: "millpond": executable file not found', "build it from the worker image"),
        image=Image(_GOOD.topology, create_error='exec: "millpond": executable file not found in $PATH'),
    ),
    "memory": Mistake(
        "OutOfMemory",
        ("more memory than its limit", "raise spec.resources.limits.memory"),
        image=Image(_GOOD.topology, crash=("OOMKilled", "")),
    ),
    "segfault": Mistake(
        "WorkerFailed",
        ("kubectl logs --previous segfault-0",),
        image=Image(
            _GOOD.topology,
            crash=("Unforeseen", "SystemError in delays.py, line 3: see kubectl logs --previous segfault-0."),
        ),
    ),
    "no-node": Mistake(
        "Unschedulable", ("does not fit on any node", "spec.pod"), {"pod": {"nodeSelector": {"disk": "fast"}}}
    ),
    "credentials": Mistake(
        "SecretMissing",
        ("Secret 'kafka-login' does not exist", "create it in the namespace"),
        {"kafka": {"credentialsSecret": "kafka-login"}},
        cure=lambda scene, _: _secret(scene, "kafka-login", "sasl.username"),
    ),
    "secret": Mistake(
        "SecretMissing",
        ("Secret 'greetings' does not exist", "create it in the namespace"),
        {"env": [{"name": "GREETING", "valueFrom": {"secretKeyRef": {"name": "greetings", "key": "word"}}}]},
        cure=lambda scene, _: _secret(scene, "greetings", "word"),
    ),
    "secret-key": Mistake(
        "SecretMissing",
        ("couldn't find key wrod in Secret", "Add the key"),
        {"env": [{"name": "GREETING", "valueFrom": {"secretKeyRef": {"name": "words", "key": "wrod"}}}]},
        before=lambda scene, _: _secret(scene, "words", "word"),
        cure=lambda scene, _: _secret(scene, "words", "wrod"),
    ),
    "mount": Mistake(
        "ConfigMapMissing",
        ("ConfigMap 'tables' does not exist", "create it in the namespace"),
        {"pod": {"mounts": [{"name": "tables", "path": "/data/tables", "configMap": "tables"}]}},
    ),
    "taken": Mistake(
        "NameTaken",
        ("StatefulSet 'taken' exists and does not belong to this StreamApp: delete it",),
        before=_foreign("StatefulSet"),
        cure=_deleted("StatefulSet"),
    ),
    "taken-service": Mistake(
        "NameTaken",
        ("Service 'taken-service' exists and does not belong to this StreamApp: delete it",),
        before=_foreign("Service"),
        cure=_deleted("Service"),
    ),
    "taken-account": Mistake(
        "NameTaken",
        ("ServiceAccount 'taken-account' exists and does not belong to this StreamApp: delete it",),
        before=_foreign_account,
        cure=_deleted("ServiceAccount"),
    ),
    "same-id": Mistake(
        "ApplicationIdTaken",
        ("StreamApp 'same-id-first'", "runs application 'orders' on the same Kafka", "another spec.applicationId"),
        {"applicationId": "orders", "kafka": {"bootstrapServers": "a:9092,b:9092"}},
        before=_other_app,
        cure=_delete_other_app,
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_mistake_is_one_condition_until_it_is_cured(scene: Scene, seed: int, soak: bool) -> None:
    """Degraded names the cause and the cure once, nothing is written while it lasts, and then the application runs."""
    names = list(MISTAKES) if soak else random.Random(seed).sample(list(MISTAKES), len(MISTAKES) // 2)
    for act in (_make, _see, _await_quiet, _cure):
        together([functools.partial(act, scene, name) for name in names], act.__name__)


def _make(scene: Scene, name: str) -> None:
    mistake = MISTAKES[name]
    mistake.before(scene, name)
    scene.kubelets.images[name] = mistake.image
    scene.apply(name, merged(merged(BASE, {"image": name}), mistake.spec))


def _see(scene: Scene, name: str) -> None:
    mistake = MISTAKES[name]
    found = scene.await_true(name, "Degraded", mistake.reason)
    assert scene.condition(name, "Ready")["status"] == "False"
    for words in mistake.says:
        assert words in found["message"], (name, found["message"])


def _await_quiet(scene: Scene, name: str) -> None:
    """Wait for a period in which the mistake lasts and the operator writes nothing."""
    began = clock.monotonic()
    scene.eventually(
        lambda: clock.monotonic() - max([began, *(call.at for call in _writes(scene, name))]) > _QUIET_S,
        lambda: f"{name} is written no more: {[str(call) for call in _writes(scene, name)]}",
    )


def _cure(scene: Scene, name: str) -> None:
    reason = MISTAKES[name].reason
    told = [event for event in scene.events(name) if event["reason"] == reason]
    assert [event.get("count", 1) for event in told] == [1], (name, told)
    assert _told(scene, name) == {reason}
    MISTAKES[name].cure(scene, name)
    scene.await_settled(name)
    assert scene.condition(name, "Degraded")["status"] == "False"


def _writes(scene: Scene, name: str) -> list[Call]:
    """Return what the operator wrote about an application."""
    return scene.proxy.writes(lambda call: call.name == name or call.name.startswith((f"{name}.", f"{name}-0")))


def _told(scene: Scene, name: str) -> set[str]:
    """Return the reasons of all its Degraded conditions so far."""
    found = set()
    for call in _writes(scene, name):
        if call.subresource == "status":
            degraded = condition_in(call.body["status"], "Degraded")
            if degraded.get("status") == "True":
                found.add(degraded["reason"])
    return found
