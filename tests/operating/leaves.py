"""The leaves of a StreamApp's specification: two values for most of them, and where these show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.api import Object
from tests.operating.scene import Scene

__all__ = ("CASES", "Case", "Look", "leaves", "leaves_of", "prepare")

_CRDS = Path(__file__).parents[2] / "crds"
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_GREETING = "GREETING"


def leaves() -> set[str]:
    """Return the paths of all leaves of a StreamApp."""
    return leaves_of("streamapps")


def leaves_of(plural: str) -> set[str]:
    """Return the paths of all leaves from the CRD: `env[].name` is in a list, `config.*` is a value of a map."""
    crd = yaml.safe_load((_CRDS / f"{plural}.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return set(_leaves(schema, ""))


def _leaves(schema: Object, path: str) -> Iterator[str]:
    if "properties" in schema:
        for name, inside in schema["properties"].items():
            yield from _leaves(inside, f"{path}.{name}" if path else name)
    elif schema.get("type") == "array":
        yield from _leaves(schema["items"], f"{path}[]")
    elif "additionalProperties" in schema:
        yield from _leaves(schema["additionalProperties"], f"{path}.*")
    else:
        yield path


class PodLike:
    """A pod, or the template of pods."""

    def __init__(self, given: Object) -> None:
        self.metadata: Object = given["metadata"]
        self.spec: Object = given["spec"]
        self.container: Object = self.spec["containers"][0]
        self.env: dict[str, Object] = {each["name"]: each for each in self.container["env"]}

    def variable(self, name: str) -> str | None:
        """Return the value of an environment variable."""
        value: str | None = self.env.get(name, {}).get("value")
        return value

    def source(self, kind: str) -> Object | None:
        """Return the source of the value of the tests' own variable."""
        source: Object | None = self.env.get(_GREETING, {}).get("valueFrom", {}).get(kind)
        return source

    def volume(self, name: str) -> Object | None:
        """Return a volume."""
        return next((each for each in self.spec["volumes"] if each["name"] == name), None)

    def toleration(self) -> Object:
        """Return the toleration that Kubernetes did not add."""
        own = (each for each in self.spec.get("tolerations", ()) if each.get("key") in {"dedicated", "spot"})
        return next(own, {})


class Look:
    """The state of an application at one moment."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.app = scene.get("StreamApp", name)
        self.stateful_set = scene.get("StatefulSet", name)
        self.pods = scene.pods(name)

    def in_pods(self, shows: Callable[[PodLike], Any]) -> Any:
        """Return what the pod template and all pods show; several values if they do not agree."""
        seen = [
            shows(PodLike(self.stateful_set["spec"]["template"])),
            *(shows(PodLike(pod)) for pod in self.pods.values()),
        ]
        return seen[0] if all(each == seen[0] for each in seen) else seen


@dataclass(frozen=True)
class Case:
    """A leaf that is set, changed and removed.

    Attributes:
        leaf: its path.
        first: the change of the specification that sets it.
        second: the change that gives it another value.
        shows: where it is seen.
        expected: what is seen there, with the first value and with the second one.
    """

    leaf: str
    first: Object
    second: Object
    shows: Callable[[Look], Any]
    expected: tuple[Any, Any]


def prepare(scene: Scene) -> None:
    """Create what the cases refer to."""
    namespace = scene.namespace
    for name in ("one", "two"):
        data = {"word": "hello", "other": "servus"}
        made = {"apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}}
        scene.api.apply({**made, "kind": "Secret", "stringData": data})
        scene.api.apply({**made, "kind": "ConfigMap", "data": data})


def _simple(
    leaf: str, one: Any, two: Any, shows: Callable[[PodLike], Any], seen: tuple[Any, Any] | None = None
) -> Case:
    """Return the case of a leaf that shows in pods, by default as it was written."""
    path = leaf.removesuffix(".*")
    return Case(leaf, _at(path, one), _at(path, two), lambda look: look.in_pods(shows), seen or (one, two))


def _at(path: str, value: Any) -> Object:
    head, _, rest = path.partition(".")
    return {head: _at(rest, value) if rest else value}


def _listed(leaf: str, shows: Callable[[PodLike], Any], one: Object, two: Object, seen: tuple[Any, Any]) -> Case:
    """Return the case of a leaf in a list item."""
    path = leaf.partition("[]")[0]
    return Case(leaf, _at(path, [one]), _at(path, [two]), lambda look: look.in_pods(shows), seen)


def _source(kind: str, leaf: str, one: Object, two: Object) -> Case:
    given = [{"name": _GREETING, "valueFrom": {kind: {"name": "one", "key": "word"} | each}} for each in (one, two)]
    seen = tuple({"name": "one", "key": "word"} | each for each in (one, two))
    return _listed(f"env[].valueFrom.{kind}.{leaf}", lambda pod: pod.source(kind), *given, seen)


def _toleration(leaf: str, one: Object, two: Object) -> Case:
    given = [{"key": "dedicated", "operator": "Exists"} | each for each in (one, two)]
    seen = tuple(each[leaf] for each in given)
    return _listed(f"pod.tolerations[].{leaf}", lambda pod: pod.toleration().get(leaf), *given, seen)


def _spread(leaf: str, one: Any, two: Any) -> Case:
    given = [{"topologyKey": _ZONE} | {leaf: each} for each in (one, two)]

    def shows(pod: PodLike) -> list[Any]:
        return [each[leaf] for each in pod.spec["topologySpreadConstraints"]]

    return _listed(f"pod.topologySpreadConstraints[].{leaf}", shows, *given, ([one], [two]))


def _mount(leaf: str, one: Object, two: Object, shows: Callable[[PodLike], Any], seen: tuple[Any, Any]) -> Case:
    given = [{"name": "tables", "path": "/data/tables"} | each for each in (one, two)]
    return _listed(f"pod.mounts[].{leaf}", shows, *given, seen)


def _mounted(pod: PodLike) -> list[tuple[str, str]]:
    return [
        (each["name"], each["mountPath"])
        for each in pod.container["volumeMounts"]
        if each["mountPath"].startswith("/data/")
    ]


def _tables(kind: str, key: str) -> Callable[[PodLike], Any]:
    return lambda pod: ((pod.volume("mount-tables") or {}).get(kind) or {}).get(key)


def _bootstrap_secret(pod: PodLike) -> tuple[Any, str | None]:
    secret = (pod.volume("bootstrap") or {}).get("secret") or {}
    return secret.get("secretName"), pod.variable("MILLPOND_BOOTSTRAP_CREDENTIALS_DIR")


def _session(look: Look) -> Any:
    """Return the session timeouts that a worker gets from its environment and from the coordinator."""
    workers = look.scene.kubelets.workers(look.scene.namespace)
    answers = [workers[name].answer for name in look.pods if name in workers]
    told = [answer.session_timeout_ms for answer in answers if answer is not None]
    return look.in_pods(lambda pod: pod.variable("MILLPOND_COORDINATOR_SESSION_TIMEOUT")), told


def _retention(when: str) -> Case:
    leaf = f"state.retentionPolicy.{when}"

    def shows(look: Look) -> Any:
        return look.stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"][when]

    return Case(leaf, _at(leaf, "Retain"), _at(leaf, "Delete"), shows, ("Retain", "Delete"))


def _grace(pod: PodLike) -> tuple[int, str | None]:
    return pod.spec["terminationGracePeriodSeconds"], pod.variable("MILLPOND_SHUTDOWN_TIMEOUT")


def _replicas(look: Look) -> tuple[int, int, str]:
    return look.stateful_set["spec"]["replicas"], len(look.pods), look.app["status"]["workers"]


def _suspended(look: Look) -> tuple[str, int, int]:
    return look.app["status"]["phase"], look.stateful_set["spec"]["replicas"], len(look.pods)


def _standbys(look: Look) -> int:
    spec = look.scene.get("StreamAssignment", look.app["metadata"]["name"])["spec"]
    return sum(len(worker.get("standby", ())) for worker in spec["workers"])


CASES: tuple[Case, ...] = (
    _simple("image", "delays:2", "delays:3", lambda pod: pod.container["image"]),
    _simple("imagePullPolicy", "Always", "Never", lambda pod: pod.container["imagePullPolicy"]),
    _listed(
        "imagePullSecrets[].name",
        lambda pod: pod.spec.get("imagePullSecrets"),
        {"name": "one"},
        {"name": "two"},
        ([{"name": "one"}], [{"name": "two"}]),
    ),
    _simple("topology", "app:other", "shop.orders:topology", lambda pod: pod.container["command"][-1]),
    Case("replicas", {"replicas": 2}, {"replicas": 3}, _replicas, ((2, 2, "2/2"), (3, 3, "3/3"))),
    Case(
        "standbyReplicas",
        {"standbyReplicas": 1, "replicas": 3},
        {"standbyReplicas": 2, "replicas": 3},
        _standbys,
        (4, 8),
    ),
    _simple("commitInterval", "200ms", "1s", lambda pod: pod.variable("MILLPOND_COMMIT_INTERVAL")),
    Case(
        "sessionTimeout",
        {"sessionTimeout": "5s"},
        {"sessionTimeout": "1500ms"},
        _session,
        (("5s", [5000]), ("1500ms", [1500])),
    ),
    _simple(
        "kafka.bootstrapServers", "kafka-1:9092", "kafka-2:9092", lambda pod: pod.variable("MILLPOND_BOOTSTRAP_SERVERS")
    ),
    _simple(
        "kafka.credentialsSecret",
        "one",
        "two",
        lambda pod: (
            ((pod.volume("credentials") or {}).get("secret") or {}).get("secretName"),
            pod.variable("MILLPOND_CREDENTIALS_DIR"),
        ),
        (("one", "/etc/millpond/credentials"), ("two", "/etc/millpond/credentials")),
    ),
    _simple(
        "config.*",
        {"app.limit": "1", "app.name": "$(HOME)"},
        {"app.limit": "2"},
        lambda pod: pod.variable("MILLPOND_CONFIG_INLINE"),
        (json.dumps({"app.limit": "1", "app.name": "$$(HOME)"}), json.dumps({"app.limit": "2"})),
    ),
    _listed(
        "env[].name",
        lambda pod: sorted(pod.env.keys() & {_GREETING, "FAREWELL"}),
        {"name": _GREETING, "value": "hello"},
        {"name": "FAREWELL", "value": "hello"},
        ([_GREETING], ["FAREWELL"]),
    ),
    _listed(
        "env[].value",
        lambda pod: pod.variable(_GREETING),
        {"name": _GREETING, "value": "hello"},
        {"name": _GREETING, "value": "servus"},
        ("hello", "servus"),
    ),
    *(
        _source(kind, leaf, one, two)
        for kind in ("secretKeyRef", "configMapKeyRef")
        for leaf, one, two in (
            ("name", {"name": "one"}, {"name": "two"}),
            ("key", {"key": "word"}, {"key": "other"}),
            ("optional", {"optional": True}, {"optional": False}),
        )
    ),
    _retention("whenDeleted"),
    _retention("whenScaled"),
    # Written in another way than the API server has them.
    _simple(
        "resources.requests.*",
        {"cpu": "1000m"},
        {"memory": "1024Mi"},
        lambda pod: pod.container["resources"].get("requests"),
        ({"cpu": "1"}, {"memory": "1Gi"}),
    ),
    _simple(
        "resources.limits.*",
        {"memory": "2048Mi"},
        {"memory": "3Gi", "cpu": 2},
        lambda pod: pod.container["resources"].get("limits"),
        ({"memory": "2Gi"}, {"memory": "3Gi", "cpu": "2"}),
    ),
    _simple("pod.labels.*", {"team": "a"}, {"team": "b"}, lambda pod: pod.metadata["labels"].get("team"), ("a", "b")),
    _simple(
        "pod.annotations.*",
        {"example.com/note": "a"},
        {"example.com/note": "b"},
        lambda pod: pod.metadata.get("annotations"),
        ({"example.com/note": "a"}, {"example.com/note": "b"}),
    ),
    _simple("pod.nodeSelector.*", {_ZONE: "zone-0"}, {_ZONE: "zone-1"}, lambda pod: pod.spec.get("nodeSelector")),
    _toleration("key", {"key": "dedicated"}, {"key": "spot"}),
    _toleration("operator", {"operator": "Exists"}, {"operator": "Equal"}),
    _toleration("value", {"operator": "Equal", "value": "a"}, {"operator": "Equal", "value": "b"}),
    _toleration("effect", {"effect": "NoSchedule"}, {"effect": "NoExecute"}),
    _toleration(
        "tolerationSeconds",
        {"effect": "NoExecute", "tolerationSeconds": 60},
        {"effect": "NoExecute", "tolerationSeconds": 0},
    ),
    _simple(
        "pod.priorityClassName",
        "system-cluster-critical",
        "system-node-critical",
        lambda pod: pod.spec.get("priorityClassName"),
    ),
    _spread("topologyKey", _ZONE, _HOST),
    _spread("maxSkew", 2, 3),
    _spread("whenUnsatisfiable", "DoNotSchedule", "ScheduleAnyway"),
    _simple("pod.terminationGracePeriodSeconds", 30, 15, _grace, ((30, "20s"), (15, "7500ms"))),
    _mount(
        "name",
        {"secret": "one"},
        {"secret": "one", "name": "files"},
        _mounted,
        ([("mount-tables", "/data/tables")], [("mount-files", "/data/tables")]),
    ),
    _mount(
        "path",
        {"secret": "one"},
        {"secret": "one", "path": "/data/other"},
        _mounted,
        ([("mount-tables", "/data/tables")], [("mount-tables", "/data/other")]),
    ),
    _mount("secret", {"secret": "one"}, {"secret": "two"}, _tables("secret", "secretName"), ("one", "two")),
    _mount("configMap", {"configMap": "one"}, {"configMap": "two"}, _tables("configMap", "name"), ("one", "two")),
    _simple(
        "bootstrap.location",
        "s3://states/one",
        "s3://states/two",
        lambda pod: pod.variable("MILLPOND_BOOTSTRAP_LOCATION"),
    ),
    Case(
        "bootstrap.credentialsSecret",
        {"bootstrap": {"location": "s3://states", "credentialsSecret": "one"}},
        {"bootstrap": {"location": "s3://states", "credentialsSecret": "two"}},
        lambda look: look.in_pods(_bootstrap_secret),
        (("one", "/etc/millpond/bootstrap"), ("two", "/etc/millpond/bootstrap")),
    ),
    Case("suspended", {"suspended": True}, {"suspended": False}, _suspended, (("Suspended", 0, 0), ("Running", 1, 1))),
    Case(
        "deletion.kafka",
        {"deletion": {"kafka": "Delete"}},
        {"deletion": {"kafka": "Retain"}},
        lambda look: look.app["metadata"].get("finalizers", []),
        (["millpond.dev/kafka-cleanup"], []),
    ),
)
