"""The rules of the custom resource definitions: for each, what it refuses and what it lets through.

Changes are values by path within `spec`; a path that begins with a dot begins at the object.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple


def changed(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with other values at some paths, which are in `spec` unless they begin with a dot; `None` takes away."""
    built = copy.deepcopy(dict(given))
    for path, value in changes.items():
        *outer, last = path.removeprefix(".").split("/") if path.startswith(".") else ["spec", *path.split("/")]
        inner = built
        for each in outer:
            inner = inner.setdefault(each, {})
        if value is None:
            inner.pop(last, None)
        else:
            inner[last] = copy.deepcopy(value)
    return built


_DURATION = "write a duration as a number with a unit"
_AMOUNT = "write resources as amounts"
_LABELS = "keys and values of labels have"
_ENV = {"name": "A", "value": "1"}


class Case(NamedTuple):
    """What one rule refuses, and the nearest that it does not."""

    message: str
    """The beginning of the rule's message."""
    wrong: Mapping[str, Any]
    right: Mapping[str, Any]
    told: str = ""
    """What is said, when the rule makes its message from what it finds."""


def _toleration(**given: Any) -> dict[str, Any]:
    return {"pod/tolerations": [given]}


def _mount(**given: Any) -> dict[str, Any]:
    return {"pod/mounts": [{"name": "data", "path": "/etc/data", "secret": "data"} | given]}


OBJECT: tuple[Case, ...] = (
    Case("metadata.name becomes part", {".metadata/name": "a" * 53}, {".metadata/name": "a" * 52}),
    Case("metadata.name becomes part", {".metadata/name": "9lives"}, {".metadata/name": "lives9"}),
    Case("metadata.name becomes part", {".metadata/name": "a.b"}, {".metadata/name": "a-b"}),
    Case("an image has no spaces", {"image": "delays: 3"}, {"image": "registry.example.com:5000/a/delays@sha256:1f"}),
    Case("topology is written as", {"topology": "app"}, {"topology": "shop.orders:topologies.delays"}),
    Case("topology is written as", {"topology": "app:delays --verbose"}, {"topology": "_app:_delays"}),
    Case("applicationId begins", {"applicationId": "shop/delays"}, {"applicationId": "Shop.delays_2-b"}),
    Case("applicationId begins", {"applicationId": ".."}, {"applicationId": "..."}),
    Case(_DURATION, {"commitInterval": "5"}, {"commitInterval": "100ms"}),
    Case(_DURATION, {"sessionTimeout": "1m30s"}, {"sessionTimeout": "90s"}),
    Case(_DURATION, {"rollout/progressDeadline": "1d"}, {"rollout/progressDeadline": "24h"}),
    Case(_DURATION, {"rollout/minReady": "soon"}, {"rollout/minReady": "0s"}),
    Case("sessionTimeout is from", {"sessionTimeout": "299ms"}, {"sessionTimeout": "300ms"}),
    Case("sessionTimeout is from", {"sessionTimeout": "11m"}, {"sessionTimeout": "10m"}),
    Case("list brokers as", {"kafka/bootstrapServers": "kafka"}, {"kafka/bootstrapServers": "kafka:9092"}),
    Case(
        "list brokers as", {"kafka/bootstrapServers": "a:1,"}, {"kafka/bootstrapServers": "a:1, [fe80::1]:2,SSL://c:3"}
    ),
    *(
        Case(f"{key.removesuffix('.ms')} has a field", {"config": {key: "1"}}, {field: value})
        for key, field, value in (
            ("application.id", "applicationId", "a"),
            ("bootstrap.servers", "kafka/bootstrapServers", "a:1"),
            ("processing.guarantee", "processingGuarantee", "at_least_once"),
            ("num.standby.replicas", "standbyReplicas", 1),
            ("max.warmup.replicas", "maxWarmupReplicas", 1),
            ("acceptable.recovery.lag", "acceptableRecoveryLag", 1),
            ("commit.interval", "commitInterval", "1s"),
            ("commit.interval.ms", "commitInterval", "1s"),
            ("coordinator.session.timeout", "sessionTimeout", "1s"),
            ("coordinator.session.timeout.ms", "sessionTimeout", "1s"),
            ("shutdown.timeout", "pod/terminationGracePeriodSeconds", 90),
            ("shutdown.timeout.ms", "pod/terminationGracePeriodSeconds", 90),
        )
    ),
    *(
        Case(
            "settings about the pod itself",
            {"config": {"app.x": "1", key: "1"}},
            {"config": {"app." + key: "1"}},
            f"'{key}' is set by the operator, which knows the pod: remove it from config",
        )
        for key in (
            "worker.id",
            "state.dir",
            "http.port",
            "coordinator.url",
            "application.server",
            "credentials.dir",
            "revision",
        )
    ),
    *(
        Case(
            "config is no place for secrets",
            {"config": {"app.x": "1", key: "1"}},
            {"config": {"sasl.username": "me", "app.passwords.file": "/x", "max.task.idle.ms": "0"}},
            f"'{key}' is a secret and config is not: put it into the Secret that kafka.credentialsSecret names, or let "
            "env take it from a Secret",
        )
        for key in ("sasl.password", "consumer.ssl.key.password", "SSL.key.pem", "app.api_token", "sasl.jaas.config")
    ),
    Case("variables that begin with MILLPOND_", {"env": [_ENV | {"name": "MILLPOND_X"}]}, {"env": [_ENV]}),
    Case("give either value or valueFrom", {"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": ""}]}),
    Case(
        "give either value or valueFrom",
        {"env": [_ENV | {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]},
    ),
    Case(
        "name one source, either",
        {"env": [{"name": "A", "valueFrom": {}}]},
        {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}]},
    ),
    Case("a variable's name has", {"env": [_ENV | {"name": "1A"}]}, {"env": [_ENV | {"name": "_1.a-B"}]}),
    Case(
        "ephemeral state has no volume",
        {"state": {"ephemeral": True, "storageClassName": "fast"}},
        {"state": {"ephemeral": False, "storageClassName": "fast"}},
    ),
    Case("write size as an amount", {"state/size": "20GB"}, {"state/size": "20G"}),
    Case("a volume has no parts of a byte", {"state/size": "1.23456Gi"}, {"state/size": "1.5Gi"}),
    Case("a volume has no parts of a byte", {"state/size": "1000000000.5"}, {"state/size": "1E"}),
    Case("a volume has no parts of a byte", {"state/size": "1000000000001m"}, {"state/size": "1000000000000m"}),
    Case("write size as an amount", {"state/size": 0}, {"state/size": 1000000000}),
    Case(
        "a limit is below",
        {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1000Mi"}}},
        {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"memory": "1024Mi"}}},
    ),
    Case(_AMOUNT, {"resources/requests": {"cpu": "one"}}, {"resources/requests": {"cpu": "1"}}),
    Case(
        _AMOUNT, {"resources/limits": {"memory": "-1"}}, {"resources/limits": {"memory": "1e9", "example.com/gpu": 1}}
    ),
    Case(
        "the labels app.kubernetes.io/name",
        {"pod/labels": {"app.kubernetes.io/instance": "x"}},
        {"pod/labels": {"app.kubernetes.io/version": "x"}},
    ),
    Case("the labels app.kubernetes.io/name", {"pod/labels": {"millpond.dev/x": "x"}}, {"pod/labels": {"team": "x"}}),
    Case(_LABELS, {"pod/labels": {"team": "a b"}}, {"pod/labels": {"example.com/team": "a_b", "none": ""}}),
    Case(_LABELS, {"pod/labels": {"-team": "a"}}, {"pod/labels": {"team": "a"}}),
    Case(_LABELS, {"pod/nodeSelector": {"a/b/c": "x"}}, {"pod/nodeSelector": {"kubernetes.io/arch": "amd64"}}),
    Case(
        "annotations of millpond.dev/", {"pod/annotations": {"millpond.dev/a": ""}}, {"pod/annotations": {"a": "b c"}}
    ),
    Case("keys of annotations have", {"pod/annotations": {"a b": ""}}, {"pod/annotations": {"example.com/a": ""}}),
    Case(
        "a toleration with operator Exists",
        _toleration(key="a", operator="Exists", value="b"),
        _toleration(key="a", operator="Equal", value="b"),
    ),
    Case("a toleration without a key", _toleration(value="b"), _toleration(operator="Exists")),
    Case(
        "tolerationSeconds is for",
        _toleration(key="a", effect="NoSchedule", tolerationSeconds=5),
        _toleration(key="a", effect="NoExecute", tolerationSeconds=5),
    ),
    Case(
        "two mounts have the same path",
        {"pod/mounts": [{"name": n, "path": "/data", "secret": n} for n in "ab"]},
        {"pod/mounts": [{"name": n, "path": f"/data/{n}", "secret": "s"} for n in "ab"]},
    ),
    Case("name one source of files", _mount(configMap="data"), _mount()),
    Case("a mount's name has", _mount(name="Data"), _mount(name="data-2")),
    Case("a path begins with '/'", _mount(path="data"), _mount(path="/data")),
    *(
        Case("this directory is the system's", _mount(path=path), _mount(path=path + "-of-mine"))
        for path in ("/tmp", "/var/lib/millpond", "/etc/millpond", "/proc", "/var/run/millpond")
    ),
    Case("this directory is the system's", _mount(path="/etc/millpond/credentials"), _mount(path="/etc/ssl/mine")),
    Case(
        "no worker starts that fast",
        {"rollout": {"progressDeadline": "9s", "minReady": "1s"}},
        {"rollout": {"progressDeadline": "11s"}},
    ),
    Case(
        "no worker could be ready",
        {"rollout": {"progressDeadline": "1m", "minReady": "60s"}},
        {"rollout": {"progressDeadline": "1m", "minReady": "59s"}},
    ),
)


class Change(NamedTuple):
    """What one transition rule refuses, and the nearest that it does not."""

    message: str
    before: Mapping[str, Any]
    wrong: Mapping[str, Any]
    right: Mapping[str, Any]


_ID = "applicationId names the consumer group"
_CLASS = "volumes cannot change their class"

TRANSITIONS: tuple[Change, ...] = (
    Change(_ID, {}, {"applicationId": "delays"}, {"image": "b"}),
    Change(_ID, {"applicationId": "a"}, {"applicationId": None}, {"applicationId": "a", "image": "b"}),
    Change(_ID, {"applicationId": "a"}, {"applicationId": "b"}, {"applicationId": "a", "topology": "c:d"}),
    Change(
        "workers of both guarantees",
        {},
        {"processingGuarantee": "at_least_once"},
        {"processingGuarantee": "at_least_once", "rollout/strategy": "Recreate"},
    ),
    Change(
        "a volume cannot be made smaller", {"state/size": "2Gi"}, {"state/size": "2047Mi"}, {"state/size": "2049Mi"}
    ),
    Change(
        "a volume cannot be made smaller",
        {"state/size": "2Gi"},
        {"state/size": None},
        {"state/size": 2147483648},
    ),
    Change("state cannot move", {}, {"state/ephemeral": True}, {"state/ephemeral": False}),
    Change(
        "state cannot move",
        {"state/ephemeral": True},
        {"state/ephemeral": False},
        {"state/size": "1Mi", "state/ephemeral": True},
    ),
    Change(_CLASS, {}, {"state/storageClassName": "fast"}, {"state/size": "2Gi"}),
    Change(
        _CLASS,
        {"state/storageClassName": "a"},
        {"state/storageClassName": "b"},
        {"state/storageClassName": "a", "state/size": "2Gi"},
    ),
    Change(_CLASS, {"state/storageClassName": "a"}, {"state/storageClassName": None}, {"state/storageClassName": "a"}),
)

STATUS_TRANSITIONS: tuple[Change, ...] = (
    Change("a newer leader of the operator writes this", {"leaderEpoch": 5}, {"leaderEpoch": 4}, {"leaderEpoch": 5}),
    Change("a newer leader of the operator writes this", {"leaderEpoch": 5}, {"leaderEpoch": -1}, {"leaderEpoch": 6}),
    Change(
        "only the operator writes the status",
        {"leaderEpoch": 5},
        {"phase": "Running"},
        {"leaderEpoch": 5, "phase": "Running"},
    ),
)
"""Of the status of StreamApps."""

ASSIGNMENT_TRANSITIONS: tuple[Change, ...] = (
    Change("a newer leader of the operator wrote", {}, {"number": 6}, {"number": 7}),
    Change("a newer leader of the operator wrote", {}, {"term": 2, "number": 9}, {"term": 4, "number": 0}),
    Change("an assignment stays with", {}, {"application": "other"}, {"number": 8}),
)
"""Of the specification of StreamAssignments."""
