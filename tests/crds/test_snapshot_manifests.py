"""Manifests of a StateBootstrap: each leaf of its specification has an effect, and its pods are as restricted as
workers.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millpond_operator.resources import (
    Object,
    bootstrap_name,
    parse,
    parse_bootstrap,
    scheduled_bootstrap,
    snapshot_access,
    snapshot_job,
    snapshot_settings,
)
from tests.crds.rules import changed
from tests.operating.leaves import leaves_of

APP = {
    "metadata": {"name": "delays", "namespace": "shop", "uid": "1"},
    "spec": {
        "image": "delays:1",
        "topology": "app:delays",
        "kafka": {"bootstrapServers": "kafka:9092", "credentialsSecret": "kafka"},
        "pod": {"mounts": [{"name": "tables", "path": "/data", "configMap": "tables"}]},
        "env": [{"name": "GREETING", "value": "hello"}],
        "bootstrap": {"location": "s3://states/a", "schedule": "0 3 * * *", "spark": {"image": "spark:1"}},
    },
}
BOOTSTRAP = {
    "metadata": {"name": "nightly", "namespace": "shop", "uid": "2"},
    "spec": {"streamApp": "delays", "location": "s3://states/a", "spark": {"image": "spark:1", "mode": "Executors"}},
}


def manifests(changes: Any = None) -> tuple[Object, dict[str, str], Object]:
    """The Job, Spark's settings, and the executors' pods."""
    app, bootstrap = parse(APP), parse_bootstrap(changed(BOOTSTRAP, changes or {}))
    data = snapshot_settings(app, bootstrap)["data"]
    settings = dict(line.split(" ", 1) for line in data["spark-defaults.conf"].splitlines())
    return snapshot_job(app, bootstrap), settings, json.loads(data.get("executor.json", "{}"))


def container(pod: Object) -> Object:
    (found,) = pod["spec"]["containers"]
    return found


def command(job: Object) -> list[str]:
    return container(job["spec"]["template"])["command"]


def secrets(pod: Object) -> list[str]:
    return [each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each]


CASES: dict[str, tuple[Any, Any, Any]] = {
    "location": ("s3://b-c/d", "s3://states/e", lambda job, *_: command(job)[command(job).index("--location") + 1]),
    "credentialsSecret": ("one", "two", lambda job, _, pod: (secrets(job["spec"]["template"])[-1], secrets(pod)[-1])),
    "catalog": ("s3://a/$x", "s3://b", lambda job, *_: command(job)[command(job).index("--catalog") + 1]),
    "keep": (3, 4, lambda job, *_: command(job)[command(job).index("--keep") + 1]),
    "full": (True, False, lambda job, *_: "--full" in command(job)),
    "deadline": ("10m", "90s", lambda job, *_: job["spec"]["activeDeadlineSeconds"]),
    "backoffLimit": (1, 0, lambda job, *_: job["spec"]["backoffLimit"]),
    "suspend": (True, False, lambda job, *_: job["spec"]["suspend"]),
    "spark/image": (
        "spark:2",
        "spark:3",
        lambda job, settings, _: (
            container(job["spec"]["template"])["image"],
            settings["spark.kubernetes.container.image"],
        ),
    ),
    "spark/mode": ("Pod", "Executors", lambda job, *_: command(job)[command(job).index("--master") + 1]),
    "spark/executors": (3, 4, lambda _, settings, __: settings["spark.executor.instances"]),
    "spark/resources/requests": (
        {"cpu": "500m"},
        {"cpu": 2},
        lambda _, settings, __: (
            settings["spark.kubernetes.executor.request.cores"],
            settings["spark.executor.cores"],
        ),
    ),
    "spark/resources/limits": (
        {"memory": "1Gi"},
        {"memory": "4Gi"},
        lambda _, settings, __: (settings["spark.executor.memory"], settings["spark.executor.memoryOverhead"]),
    ),
}
SEEN: dict[str, tuple[Any, Any]] = {
    "credentialsSecret": (("one", "one"), ("two", "two")),
    "catalog": ("s3://a/$$x", "s3://b"),
    "keep": ("3", "4"),
    "deadline": (600, 90),
    "spark/image": (("spark:2", "spark:2"), ("spark:3", "spark:3")),
    "spark/mode": ("local[*]", "k8s://https://kubernetes.default.svc"),
    "spark/executors": ("3", "4"),
    "spark/resources/requests": (("500m", "1"), ("2", "2")),
    "spark/resources/limits": (("563m", "461m"), ("2252m", "1844m")),
}
#: Who works when, and when it goes, is told by tests of the operator.
ELSEWHERE = {"streamApp", "ttlSecondsAfterFinished"}


def test_each_leaf_of_a_snapshot_has_a_case() -> None:
    """A field without a case might have no effect."""
    cased = {path.replace("/", ".") + (".*" if "resources" in path else "") for path in CASES}
    assert cased | ELSEWHERE == leaves_of("statebootstraps")


@pytest.mark.parametrize("path", CASES)
def test_each_leaf_of_a_snapshot_shows(path: str) -> None:
    """In the Job, in its command, or in Spark's settings."""
    one, two, shows = CASES[path]
    assert (shows(*manifests({path: one})), shows(*manifests({path: two}))) == SEEN.get(path, (one, two))


def test_pods_of_a_snapshot_are_restricted_and_know_what_workers_know() -> None:
    """They have the application's settings and files; executors have no token, and only the user's variables."""
    job, _, executor = manifests()
    for pod in (job["spec"]["template"], executor):
        spec, inside = pod["spec"], container(pod)
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert inside["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        paths = {each["mountPath"] for each in inside["volumeMounts"]}
        assert {"/data", "/etc/millpond/credentials", "/tmp"} <= paths
        assert {"name": "GREETING", "value": "hello"} in inside["env"]
    assert not executor["spec"]["automountServiceAccountToken"]
    assert not any(each["name"].startswith("MILLPOND_") for each in container(executor)["env"])
    variables = {each["name"] for each in container(job["spec"]["template"])["env"]}
    assert {"MILLPOND_APPLICATION_ID", "MILLPOND_BOOTSTRAP_SERVERS", "MILLPOND_TERMINATION_LOG"} <= variables
    assert not {"MILLPOND_COORDINATOR_URL", "MILLPOND_WORKER_ID"} & variables


def test_only_a_driver_with_executors_may_handle_pods() -> None:
    """Spark in one pod may only report its progress."""
    app = parse(APP)

    def roles(mode: str) -> list[str]:
        made = snapshot_access(
            app, parse_bootstrap(changed(BOOTSTRAP, {"spark/mode": mode})), "millpond-snapshot-driver"
        )
        return [each["roleRef"]["name"] for each in made if each["kind"] == "RoleBinding"]

    assert roles("Pod") == ["nightly-snapshot"]
    assert roles("Executors") == ["nightly-snapshot", "millpond-snapshot-driver"]


def test_scheduled_snapshots_have_names_that_fit() -> None:
    """The same time gives the same name, and long names stay unique."""
    now = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
    for name in ("a", "b" * 43, "c" * 44, "d" * 52):
        app = parse(changed(APP, {".metadata/name": name}))
        made = bootstrap_name(app, now)
        assert len(made) <= 52
        assert made == bootstrap_name(app, now + timedelta(seconds=59))
        assert made != bootstrap_name(app, now + timedelta(seconds=60))
        assert scheduled_bootstrap(app, now)["metadata"]["name"] == made
    others = [parse(changed(APP, {".metadata/name": "d" * 51 + last})) for last in "ef"]
    assert len({bootstrap_name(app, now) for app in others}) == 2
