"""StateBootstraps: one Job at a time creates a snapshot, and the status has its outcome."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api import Object
from tests.cluster.nodes.images import Image
from tests.cluster.nodes.kubelets import Kubelets
from tests.cluster.waiting import PATIENCE_S, wait_for
from tests.operating.scene import BASE, Scene, merged, scene_of
from tests.operating.stage import Stage
from tests.operating.world import World

pytestmark = pytest.mark.timeout(600)

SPEC: Object = {"streamApp": "delays", "location": "s3://states/delays", "spark": {"image": "spark:1"}}


@pytest.fixture
def scene(world, tmp_path) -> Iterator[Scene]:
    with scene_of(world, tmp_path, "snapshots") as made:
        made.kubelets.images["spark:1"] = Image()
        made.kubelets.images["spark:slow"] = Image(snapshot_after=3600)
        yield made


def apply(scene: Scene, name: str, **changes: Any) -> Object:
    return scene.api.apply(
        {
            "apiVersion": "millpond.dev/v1alpha1",
            "kind": "StateBootstrap",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": merged(SPEC, changes),
        }
    )


def status(scene: Scene, name: str) -> Object:
    return (scene.find("StateBootstrap", name) or {}).get("status", {})


def told(scene: Scene, name: str, type: str = "Ready") -> Object:
    return next((each for each in status(scene, name).get("conditions", ()) if each["type"] == type), {})


def await_phase(scene: Scene, name: str, phase: str, reason: str | None = None, seconds: float = PATIENCE_S) -> Object:
    scene.eventually(
        lambda: status(scene, name).get("phase") == phase and reason in {None, told(scene, name).get("reason")},
        lambda: f"{name} is {phase} ({reason}): {status(scene, name)}",
        seconds,
    )
    return status(scene, name)


def job(scene: Scene, name: str) -> Object | None:
    return scene.find("Job", f"{name}-snapshot")


def pods(scene: Scene, name: str) -> list[Object]:
    return scene.api.list("Pod", scene.namespace, f"millpond.dev/bootstrap={name}")


def reasons(scene: Scene, name: str) -> list[str]:
    found = scene.api.list("Event", scene.namespace)
    about = {"kind": "StateBootstrap", "name": name}
    return [each["reason"] for each in found if about.items() <= each["involvedObject"].items()]


def test_snapshot_is_made_and_told(scene: Scene) -> None:
    """The Job's service account has the rights that it needs and no more, and the result reaches the status."""
    scene.apply("delays", BASE)
    apply(scene, "once", spark={"image": "spark:1", "mode": "Executors", "executors": 3})
    found = await_phase(scene, "once", "Succeeded")
    assert (found["rows"], found["bytes"], found["records"]) == (1234, 5678, 9)
    assert found["version"].startswith("v-once-snapshot-")
    assert {"startedAt", "finishedAt"} <= found.keys()
    assert "tables" not in found
    assert told(scene, "once")["status"] == "True"
    assert told(scene, "once", "Progressing")["status"] == "False"
    role = scene.get("Role", "once-snapshot")["rules"]
    assert role == [
        {
            "apiGroups": ["millpond.dev"],
            "resources": ["statebootstraps/status"],
            "resourceNames": ["once"],
            "verbs": ["patch"],
        }
    ]
    assert scene.get("RoleBinding", "once-snapshot-executors")["roleRef"]["name"] == "millpond-snapshot-driver"
    settings = scene.get("ConfigMap", "once-snapshot")["data"]["spark-defaults.conf"]
    assert "spark.executor.instances 3\n" in settings
    scene.eventually(
        lambda: (job(scene, "once") or {"spec": {}})["spec"].get("ttlSecondsAfterFinished") == 3600,
        "its Job is to go after an hour",
    )
    assert set(reasons(scene, "once")) == {"Started", "Made"}


def test_tables_of_the_catalog_are_told(scene: Scene) -> None:
    """The status names their stores, and how many rows could not be decoded."""
    scene.apply("delays", BASE)
    apply(scene, "tables", catalog="s3://states/delays")
    found = await_phase(scene, "tables", "Succeeded")
    assert found["tableCount"] == 2
    assert found["tables"][0] == {"store": "a", "rows": 617, "undecodedValues": 3}
    assert [each["store"] for each in found["tables"]] == ["a", "b"]
    assert "2 tables were written to s3://states/delays." in told(scene, "tables")["message"]


def test_one_of_an_application_works_at_a_time_and_the_oldest_first(scene: Scene) -> None:
    """Other applications do not wait; a suspended one gives up its turn and starts again when it is resumed."""
    for name in ("delays", "orders"):
        scene.apply(name, BASE)
    for name in ("first", "second", "third"):
        apply(scene, name, spark={"image": "spark:slow"})
        await_phase(scene, name, "Running" if name == "first" else "Pending", None if name == "first" else "Waits")
    assert "StateBootstrap 'first'" in told(scene, "second")["message"]
    apply(scene, "elsewhere", streamApp="orders")
    await_phase(scene, "elsewhere", "Succeeded")
    apply(scene, "first", spark={"image": "spark:slow"}, suspend=True)
    await_phase(scene, "first", "Suspended")
    await_phase(scene, "second", "Running")
    assert "Waits" in told(scene, "third")["reason"]
    scene.eventually(lambda: not pods(scene, "first"), "the pods of the suspended one end")
    apply(scene, "first", spark={"image": "spark:slow"})
    await_phase(scene, "first", "Pending", "Waits")
    scene.delete("StateBootstrap", "second")
    await_phase(scene, "first", "Running")
    scene.eventually(lambda: len(pods(scene, "first")) == 1, "it starts anew")
    scene.eventually(lambda: job(scene, "second") is None, "the Job goes with its StateBootstrap")


def test_failure_is_told_in_its_own_words(scene: Scene) -> None:
    """It fails after the allowed retries, or after its deadline."""
    scene.apply("delays", BASE)
    sentence = "the bucket 'states' does not exist: create it, or correct the location."
    scene.kubelets.images["spark:wrong"] = Image(crash=("SnapshotError", sentence))
    apply(scene, "wrong", spark={"image": "spark:wrong"}, backoffLimit=1)
    await_phase(scene, "wrong", "Running", "SnapshotError")
    assert told(scene, "wrong")["message"] == f"{sentence} The Job retries."
    found = await_phase(scene, "wrong", "Failed", "SnapshotError")
    assert told(scene, "wrong")["message"] == sentence
    assert told(scene, "wrong", "Stalled")["status"] == "True"
    assert found["failures"] == 2
    assert "SnapshotError" in reasons(scene, "wrong")
    apply(scene, "late", spark={"image": "spark:slow"}, deadline="1m")
    # After its deadline its pod has 30 s to end.
    await_phase(scene, "late", "Failed", "DeadlineExceeded", 240)
    assert "spec.deadline (1m)" in told(scene, "late")["message"]


@pytest.mark.parametrize("words", [("", ""), ("two words", "x"), ("x" * 2000, "x")])
def test_failure_in_words_that_no_status_can_have_is_told_nevertheless(scene: Scene, words: tuple[str, str]) -> None:
    """User code in the pod may write anything. The next snapshot runs afterwards."""
    scene.apply("delays", BASE)
    scene.kubelets.images["spark:odd"] = Image(crash=words)
    apply(scene, "odd", spark={"image": "spark:odd"}, backoffLimit=0)
    apply(scene, "next")
    await_phase(scene, "odd", "Failed", "SnapshotFailed")
    assert "ended with exit code 1" in told(scene, "odd")["message"]
    await_phase(scene, "next", "Succeeded")


def test_what_its_pod_waits_for_is_told(scene: Scene) -> None:
    """It continues once the missing object exists."""
    scene.apply("delays", BASE)
    apply(scene, "secretive", credentialsSecret="nobody")
    await_phase(scene, "secretive", "Running", "SecretMissing")
    assert "Secret 'nobody' does not exist" in told(scene, "secretive")["message"]
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "nobody", "namespace": scene.namespace}}
    scene.api.apply(made)
    await_phase(scene, "secretive", "Succeeded")
    apply(scene, "unknown", spark={"image": "spark:nowhere"})
    await_phase(scene, "unknown", "Running", "ImageNotPullable")
    assert "spec.spark.image" in told(scene, "unknown")["message"]
    scene.delete("StateBootstrap", "unknown")
    apply(scene, "orphan", streamApp="nothing")
    await_phase(scene, "orphan", "Pending", "StreamAppMissing")
    scene.apply("nothing", BASE)
    await_phase(scene, "orphan", "Succeeded")


def test_job_that_somebody_deletes_is_made_again(scene: Scene) -> None:
    """A foreign object with its name is not touched."""
    scene.apply("delays", BASE)
    apply(scene, "again", spark={"image": "spark:slow"})
    await_phase(scene, "again", "Running")
    first = scene.get("Job", "again-snapshot")["metadata"]["uid"]
    scene.delete("Job", "again-snapshot", propagationPolicy="Background")
    scene.eventually(
        lambda: status(scene, "again").get("job") not in {None, first}, lambda: f"another one: {status(scene, 'again')}"
    )
    assert "JobDeleted" in reasons(scene, "again")
    scene.delete("StateBootstrap", "again")
    foreign = {"metadata": {"name": "taken-snapshot", "namespace": scene.namespace}, "apiVersion": "v1"}
    scene.api.create({**foreign, "kind": "ServiceAccount"})
    apply(scene, "taken")
    await_phase(scene, "taken", "Pending", "Rejected")
    assert "ServiceAccount 'taken-snapshot' exists" in told(scene, "taken")["message"]
    scene.delete("ServiceAccount", "taken-snapshot")
    await_phase(scene, "taken", "Succeeded")


def test_what_a_job_needs_is_made_again_while_it_runs(scene: Scene) -> None:
    """Its service account, rights and settings are restored whoever deletes them."""
    scene.apply("delays", BASE)
    apply(scene, "busy", spark={"image": "spark:slow", "mode": "Executors"})
    await_phase(scene, "busy", "Running")
    pod = [each["metadata"]["uid"] for each in pods(scene, "busy")]
    needed = {
        (kind, name): scene.get(kind, name)
        for kind in ("ServiceAccount", "Role", "RoleBinding", "ConfigMap")
        for name in ("busy-snapshot", *(["busy-snapshot-executors"] if kind == "RoleBinding" else []))
    }
    for kind, name in needed:
        scene.delete(kind, name)

    def missing() -> list[tuple[str, str]]:
        return [
            each
            for each, before in needed.items()
            if (scene.find(*each) or before)["metadata"]["uid"] == before["metadata"]["uid"]
        ]

    scene.eventually(lambda: not missing(), lambda: f"all of it is there again: {missing()}")
    assert scene.get("Role", "busy-snapshot")["rules"] == needed["Role", "busy-snapshot"]["rules"]
    scene.eventually(lambda: "Restored" in reasons(scene, "busy"), "an event tells of it")
    assert [each["metadata"]["uid"] for each in pods(scene, "busy")] == pod, "the Job goes on"
    scene.delete("StateBootstrap", "busy")
    scene.eventually(lambda: not any(scene.find(*each) for each in needed), "all of it goes with the StateBootstrap")


def test_finished_ones_go_after_their_time_and_leave_nothing(scene: Scene) -> None:
    """Their Jobs, service accounts and roles are deleted with them."""
    scene.apply("delays", BASE)
    apply(scene, "short", ttlSecondsAfterFinished=5)
    await_phase(scene, "short", "Succeeded")
    scene.eventually(lambda: scene.find("StateBootstrap", "short") is None, "it goes by itself")
    kinds = ("Job", "ServiceAccount", "Role", "RoleBinding", "ConfigMap")
    scene.eventually(
        lambda: not any(scene.find(kind, "short-snapshot") for kind in kinds),
        lambda: f"nothing is left: {[kind for kind in kinds if scene.find(kind, 'short-snapshot')]}",
    )


def test_workers_are_told_where_snapshots_are_and_restart_for_nothing_else(scene: Scene) -> None:
    """Workers get the location and its credentials; a change of the schedule does not restart them."""
    bootstrap = {"location": "s3://states/delays", "credentialsSecret": "keys", "spark": {"image": "spark:1"}}
    scene.apply("delays", merged(BASE, {"bootstrap": bootstrap}))
    scene.await_settled("delays")
    (pod,) = scene.pods("delays").values()
    (container,) = pod["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert variables["MILLPOND_BOOTSTRAP_LOCATION"] == "s3://states/delays"
    assert variables["MILLPOND_BOOTSTRAP_CREDENTIALS_DIR"] == "/etc/millpond/bootstrap"
    assert {"name": "bootstrap", "mountPath": "/etc/millpond/bootstrap", "readOnly": True} in container["volumeMounts"]
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "bootstrap")
    assert volume["secret"]["secretName"] == "keys"
    assert volume["secret"]["optional"]
    uids = scene.uids("Pod", "delays")
    changes = {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "keep": 3, "whenReplayExceeds": "1h"}
    scene.apply("delays", merged(BASE, {"bootstrap": bootstrap | changes}))
    scene.await_settled("delays")
    assert scene.uids("Pod", "delays") == uids


def test_two_tenants_with_the_same_names_have_each_their_own(world: World, tmp_path) -> None:
    """In two namespaces neither waits for the other, and neither gets what the other asks for."""
    namespaces = [world.namespace("shop"), world.namespace("bank")]
    with contextlib.ExitStack() as stack:
        for namespace in namespaces:
            stack.callback(world.api.delete, "Namespace", None, namespace)
        stage = stack.enter_context(Stage(world, namespaces[0], tmp_path, {"WATCH_NAMESPACES": ",".join(namespaces)}))
        stack.enter_context(
            Kubelets(
                world.background,
                world.server.admin,
                namespaces[1],
                operator_namespace=namespaces[0],
                beside=stage.kubelets,
            )
        )
        stage.kubelets.images["spark:1"] = Image(snapshot_after=3600)
        stage.start()
        for namespace in namespaces:
            metadata = {"name": "delays", "namespace": namespace}
            common = {"apiVersion": "millpond.dev/v1alpha1", "metadata": metadata}
            world.api.apply({**common, "kind": "StreamApp", "spec": BASE})
            where = {"location": f"s3://states/{namespace}"}
            world.api.apply({**common, "kind": "StateBootstrap", "spec": SPEC | where})

        def phases() -> list[str]:
            found = [world.api.get("StateBootstrap", namespace, "delays") for namespace in namespaces]
            return [each.get("status", {}).get("phase", "") for each in found]

        wait_for(lambda: phases() == ["Running", "Running"], "both work", otherwise=phases)
        for namespace in namespaces:
            job = world.api.get("Job", namespace, "delays-snapshot")
            assert f"s3://states/{namespace}" in job["spec"]["template"]["spec"]["containers"][0]["command"]
        world.api.delete("StateBootstrap", namespaces[0], "delays")
        wait_for(lambda: world.api.find("Job", namespaces[0], "delays-snapshot") is None, "one is gone")
        assert world.api.find("Job", namespaces[1], "delays-snapshot") is not None
