"""The validation rules of the custom resource definitions: for each, what it rejects and what it accepts.

Changes are values by path within `spec`; a path that begins with a dot starts at the object.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple


def changed(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with other values at some paths, which are in `spec` unless they begin with a dot; `None` removes."""
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


_DURATION = "write a duration as a number of at most six digits"
_AMOUNT = "write resources as amounts"
_LABELS = "keys and values of labels have"
_ENV = {"name": "A", "value": "1"}


class Case(NamedTuple):
    """A mistake that one rule rejects, and the nearest valid value."""

    message: str
    """The beginning of the rule's message."""
    wrong: Mapping[str, Any]
    right: Mapping[str, Any]
    told: str = ""
    """What is said, when the rule makes its message from what it finds."""


def _autoscaling(**given: Any) -> dict[str, Any]:
    return {"autoscaling": {"maxReplicas": 2} | given}


def _toleration(**given: Any) -> dict[str, Any]:
    return {"pod/tolerations": [given]}


def _mount(**given: Any) -> dict[str, Any]:
    return {"pod/mounts": [{"name": "data", "path": "/etc/data", "secret": "data"} | given]}


OBJECT: tuple[Case, ...] = (
    *(
        Case(
            "metadata.name becomes part",
            {".metadata/name": wrong},
            {".metadata/name": right},
            f"metadata.name becomes part of host names and labels and cannot be '{wrong}': choose one of at most 52 ",
        )
        for wrong, right in (("a" * 53, "a" * 52), ("9lives", "lives9"), ("a.b", "a-b"))
    ),
    *(
        Case("this is no valid image name", {"image": wrong}, {"image": right})
        for wrong, right in (
            ("delays: 3", "registry.example.com:5000/a/delays"),
            (":::", "delays"),
            ("delays:", "delays:3_a.b-c"),
            ("Delays:3", "REGISTRY/delays:3"),
            ("a//delays", "[::1]:5000/a-b/c__d/delays.e:3"),
            ("delays@sha256:1f", f"a/delays:3@sha256:{'1f' * 32}"),
        )
    ),
    Case("topology is written as", {"topology": "app"}, {"topology": "shop.orders:topologies.delays"}),
    Case("topology is written as", {"topology": "app:delays --verbose"}, {"topology": "_app:_delays"}),
    Case("applicationId begins", {"applicationId": "shop/delays"}, {"applicationId": "Shop.delays_2-b"}),
    Case("applicationId begins", {"applicationId": ".."}, {"applicationId": "..."}),
    Case(_DURATION, {"commitInterval": "5"}, {"commitInterval": "100ms"}),
    Case(_DURATION, {"commitInterval": "999999999999999h"}, {"commitInterval": "10s"}),
    Case(_DURATION, {"sessionTimeout": "999999999999999h"}, {"sessionTimeout": "600000ms"}),
    Case(_DURATION, {"rollout/progressDeadline": "999999999999999h"}, {"rollout/progressDeadline": "604800s"}),
    Case(_DURATION, {"rollout/minReady": "999999999999999h"}, {"rollout/minReady": "000001s"}),
    Case("commitInterval is from", {"commitInterval": "0s"}, {"commitInterval": "10ms"}),
    Case(
        "commitInterval is from",
        {"commitInterval": "999999h"},
        {"commitInterval": "24h", "processingGuarantee": "at_least_once"},
    ),
    *(
        Case(
            "commitInterval is longer than",
            {"commitInterval": wrong, "config": config},
            {"commitInterval": right, "config": config},
            f"spec.commitInterval: Forbidden: commitInterval is {wrong}, longer than a transaction may be open",
        )
        for wrong, right, config in (
            ("11s", "10000ms", None),
            ("11s", "10s", {"app.x": "1"}),
            ("31s", "30s", {"transaction.timeout.ms": "30000"}),
            ("2m", "1m", {"transaction.timeout": "1m"}),
            ("5s", "4s", {"transaction.timeout.ms": "4s"}),
        )
    ),
    *(
        Case(
            "no worker can hold two copies",
            {"standbyReplicas": wrong, "replicas": replicas},
            {"standbyReplicas": right, "replicas": replicas},
        )
        for wrong, right, replicas in ((1, 0, 1), (3, 2, 3), (10, 9, 10))
    ),
    Case("no worker can hold two copies", {"standbyReplicas": 1}, {"standbyReplicas": 1, "replicas": 0}),
    *(
        Case(
            "no worker can hold two copies",
            {"standbyReplicas": 2, "autoscaling": {"maxReplicas": 2} | mode, "replicas": replicas},
            {"standbyReplicas": 2, "autoscaling": {"maxReplicas": right} | mode, "replicas": max(replicas, enough)},
        )
        for mode, replicas, right, enough in (({}, 9, 3, 0), ({"mode": "Recommend"}, 2, 2, 3))
    ),
    Case(_DURATION, {"sessionTimeout": "1m30s"}, {"sessionTimeout": "90s"}),
    Case(_DURATION, {"rollout/progressDeadline": "1d"}, {"rollout/progressDeadline": "24h"}),
    Case(_DURATION, {"rollout/minReady": "soon"}, {"rollout/minReady": "0s"}),
    Case("no number of workers is", _autoscaling(minReplicas=3), _autoscaling(minReplicas=2)),
    Case("without a worker", _autoscaling(minReplicas=0), _autoscaling(minReplicas=1)),
    Case(_DURATION, _autoscaling(targetLag="1d"), _autoscaling(targetLag="24h")),
    Case("targetLag is from", _autoscaling(targetLag="999ms"), _autoscaling(targetLag="1s")),
    Case("targetUtilization is a share", _autoscaling(targetUtilization=70), _autoscaling(targetUtilization=0.7)),
    Case("targetUtilization is a share", _autoscaling(targetUtilization=0), _autoscaling(targetUtilization=0.1)),
    Case(_DURATION, _autoscaling(stabilization="soon"), _autoscaling(stabilization="5m")),
    Case("stabilization is from", _autoscaling(stabilization="59s"), _autoscaling(stabilization="1m")),
    Case("sessionTimeout is from", {"sessionTimeout": "300ms"}, {"sessionTimeout": "1s"}),
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
            ("num.standby.replicas", "standbyReplicas", 0),
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
    Case(
        "config has more than",
        {"config": {f"app.{letter}": "é" * 4096 for letter in "abcdefgh"}},
        {"config": {f"app.{letter}": "e" * 8178 for letter in "abcdefgh"}},
    ),
    Case(
        "variables that begin with MILLPOND_",
        {"env": [_ENV | {"name": "MILLPOND_X"}]},
        {"env": [_ENV]},
        "variables that begin with MILLPOND_ are the operator's, and 'MILLPOND_X' does: write the setting into "
        "spec.config",
    ),
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
    Case("a volume has a whole number of bytes", {"state/size": "1.23456Gi"}, {"state/size": "1.5Gi"}),
    Case("a volume has a whole number of bytes", {"state/size": "1000000000.5"}, {"state/size": "1E"}),
    Case("a volume has a whole number of bytes", {"state/size": "1000000000001m"}, {"state/size": "1000000000000m"}),
    Case("write size as an amount", {"state/size": 0}, {"state/size": 1000000000}),
    Case("a store does not fit", {"state/size": 1}, {"state/size": 64 * 1024 * 1024}),
    Case("a store does not fit", {"state/size": "63Mi"}, {"state/size": "64Mi"}),
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
    Case(
        "a mount lies within",
        {"pod/mounts": [{"name": n, "path": p, "secret": n} for n, p in (("a", "/data/a/b"), ("b", "/data"))]},
        {"pod/mounts": [{"name": n, "path": p, "secret": n} for n, p in (("a", "/database"), ("b", "/data"))]},
    ),
    Case("name one source of files", _mount(configMap="data"), _mount()),
    Case("a mount's name has", _mount(name="Data"), _mount(name="data-2")),
    *(
        Case("a path begins with '/'", _mount(path=wrong), _mount(path=right))
        for wrong, right in (
            ("data", "/data"),
            ("//", "/d"),
            ("/etc/../", "/etc/..data"),
            ("/data/.", "/data/.hidden"),
            ("/data//a", "/data/a..b"),
            ("/data/", "/data/a"),
            ("/data:a", "/data-a"),
        )
    ),
    *(
        Case("this directory is the system's", _mount(path=path), _mount(path=path + "-of-mine"))
        for path in (
            "/tmp",
            "/var/lib/millpond",
            "/etc/millpond",
            "/proc",
            "/var/run/millpond",
            "/app",
            "/usr",
            "/var/lib",
        )
    ),
    *(
        Case("this directory is the system's", _mount(path=wrong), _mount(path=right))
        for wrong, right in (
            ("/etc/millpond/credentials", "/etc/ssl/mine"),
            ("/usr/local/lib/python3.11", "/opt/python"),
            ("/lib64", "/app/lib64"),
        )
    ),
    Case(
        "progressDeadline is from",
        {"rollout": {"progressDeadline": "9s", "minReady": "1s"}},
        {"rollout": {"progressDeadline": "11s"}},
    ),
    Case("progressDeadline is from", {"rollout/progressDeadline": "169h"}, {"rollout/progressDeadline": "168h"}),
    Case(
        "minReady is at most",
        {"rollout": {"progressDeadline": "48h", "minReady": "25h"}},
        {"rollout": {"progressDeadline": "48h", "minReady": "24h"}},
    ),
    Case(
        "no worker could be ready",
        {"rollout": {"progressDeadline": "1m", "minReady": "60s"}},
        {"rollout": {"progressDeadline": "1m", "minReady": "59s"}},
        "spec.rollout.minReady: Forbidden: minReady is 60s and progressDeadline 1m: no worker could be ready for "
        "long enough",
    ),
)


_BOOTSTRAP: Mapping[str, Any] = {"location": "s3://states/a", "spark": {"image": "spark:1"}}


def _bootstrap(**given: Any) -> dict[str, Any]:
    return {"bootstrap": {**_BOOTSTRAP, **given}}


#: Of what StreamApps and StateBootstraps have alike: the rule, the field, and two values.
_SHARED = (
    ("pods keep snapshots in an object store", "location", "/states", "s3://states"),
    ("pods keep snapshots in an object store", "location", "s3://States/a", "s3://states/a/b-c"),
    ("pods keep tables in an object store", "catalog", "/tables", "s3://states/a"),
    (_DURATION, "deadline", "an hour", "2h"),
    ("deadline is from", "deadline", "59s", "60s"),
    ("deadline is from", "deadline", "169h", "168h"),
)

BOOTSTRAPS_OF_APPS: tuple[Case, ...] = (
    *(
        Case(message, _bootstrap(**{field: wrong}), _bootstrap(**{field: right}))
        for message, field, wrong, right in _SHARED
    ),
    Case(
        "bootstrap.location has a field", {"config": {"bootstrap.location": "s3://a"}}, {"config": {"bootstrap": "a"}}
    ),
    Case(
        "bootstrap.location has a field",
        {"config": {"bootstrap.credentials.dir": "/a"}},
        {"config": {"bootstrap.credentials": "a"}},
    ),
    Case("catalog.location has a field", {"config": {"catalog.location": "s3://a"}}, {"config": {"catalog": "a"}}),
    *(
        Case(
            "snapshots are made with Spark",
            {"bootstrap": {"location": "s3://states/a", **made}},
            {"bootstrap": {"location": "s3://states/a"}},
        )
        for made in ({"schedule": "0 3 * * *"}, {"whenReplayExceeds": "1h"}, {"catalog": "s3://states/a"})
    ),
    Case(_DURATION, _bootstrap(whenReplayExceeds="1d"), _bootstrap(whenReplayExceeds="24h")),
    Case("whenReplayExceeds is from", _bootstrap(whenReplayExceeds="999ms"), _bootstrap(whenReplayExceeds="1s")),
    Case(
        "a limit is below what is requested",
        _bootstrap(spark={"image": "a", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}),
        _bootstrap(spark={"image": "a", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 2}}}),
    ),
    Case(
        _AMOUNT,
        _bootstrap(spark={"image": "a", "resources": {"requests": {"memory": "much"}}}),
        _bootstrap(spark={"image": "a", "resources": {"requests": {"memory": "1Gi"}}}),
    ),
)
"""Of `spec.bootstrap` of StreamApps."""

BOOTSTRAPS: tuple[Case, ...] = (
    *(Case(message, {field: wrong}, {field: right}) for message, field, wrong, right in _SHARED),
    *(
        Case("metadata.name becomes part of the names of pods", {".metadata/name": wrong}, {".metadata/name": right})
        for wrong, right in (("1st", "first"), ("a" * 53, "a" * 52), ("a.b", "a-b"))
    ),
    Case(
        "a limit is below what is requested",
        {"spark/resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
        {"spark/resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1}}},
    ),
    Case(
        _AMOUNT, {"spark/resources": {"limits": {"memory": "much"}}}, {"spark/resources": {"limits": {"memory": "1Gi"}}}
    ),
)
"""Of StateBootstraps."""


class Change(NamedTuple):
    """A change that one transition rule rejects, and the nearest valid change."""

    message: str
    before: Mapping[str, Any]
    wrong: Mapping[str, Any]
    right: Mapping[str, Any]
    told: str = ""
    """What is said, when the rule makes its message from what it finds."""


_ID = "applicationId names the consumer group"
_IS_A = "spec.applicationId: Forbidden: applicationId is 'a': it names the consumer group and"
_CLASS = "volumes cannot change their class"

TRANSITIONS: tuple[Change, ...] = (
    Change(
        _ID,
        {},
        {"applicationId": "delays"},
        {"image": "b"},
        "applicationId was not given: it names the consumer group and",
    ),
    Change(_ID, {"applicationId": "a"}, {"applicationId": None}, {"applicationId": "a", "image": "b"}, _IS_A),
    Change(_ID, {"applicationId": "a"}, {"applicationId": "b"}, {"applicationId": "a", "topology": "c:d"}, _IS_A),
    Change(
        "workers of both guarantees",
        {},
        {"processingGuarantee": "at_least_once"},
        {"processingGuarantee": "at_least_once", "rollout/strategy": "Recreate"},
        "processingGuarantee was exactly_once, and workers of both guarantees must not run at once: set",
    ),
    Change(
        "a volume cannot be made smaller",
        {"state/size": "2Gi"},
        {"state/size": "2047Mi"},
        {"state/size": "2049Mi"},
        "a volume of 2Gi cannot be made smaller, and 2047Mi is: keep the size or raise it",
    ),
    Change(
        "a volume cannot be made smaller",
        {"state/size": 2147483648},
        {"state/size": None},
        {"state/size": "2Gi"},
        "a volume of 2147483648 cannot be made smaller, and 1Gi is: keep the size or raise it",
    ),
    Change("state cannot move", {}, {"state/ephemeral": True}, {"state/ephemeral": False}),
    Change(
        "state cannot move",
        {"state/ephemeral": True},
        {"state/ephemeral": False},
        {"state/size": "64Mi", "state/ephemeral": True},
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
    Change("an assignment belongs to", {}, {"application": "other"}, {"number": 8}),
)
"""Of the specification of StreamAssignments."""

BOOTSTRAP_TRANSITIONS: tuple[Change, ...] = (
    Change("a StateBootstrap belongs to one StreamApp", {}, {"streamApp": "other"}, {"suspend": True}),
    Change("a StateBootstrap makes one snapshot", {}, {"location": "s3://other"}, {"deadline": "2h"}),
)
"""Of the specification of StateBootstraps."""
