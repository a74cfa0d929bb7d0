"""By the API server's audit log, the operator uses each right of its roles, and lacks none."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.audit import LOG, Right, granted, refused, used
from tests.cluster.faultproxy import on
from tests.cluster.installing import manifests
from tests.cluster.nodes.images import Image
from tests.cluster.waiting import wait_for
from tests.operating.operators import ROOT
from tests.operating.stage import App, Stage

SLICES, SECRET = ("millpond-coordinator", "millpond-console"), "millpond-coordinator-tls"
#: The API server asks for them on behalf of other requests: the last test here, and snapshots with executors show that.
OWNERS = Right("update", "millpond.dev", "streamapps/finalizers")
ON_BEHALF = {
    OWNERS,
    Right("update", "millpond.dev", "statebootstraps/finalizers"),
    Right("bind", "rbac.authorization.k8s.io", "clusterroles", "millpond-snapshot-driver"),
}


def roles() -> list[Object]:
    return [each for each in manifests(ROOT / "deploy") if each["kind"] in {"Role", "ClusterRole"}
            and each["metadata"]["name"].startswith("millpond-operator")]  # fmt: skip


@pytest.fixture
def stage(real_world, tmp_path) -> Iterator[Stage]:
    namespace = real_world.namespace("rights")
    metadata = {"name": namespace}
    growing = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
               "provisioner": "none/none", "allowVolumeExpansion": True}  # fmt: skip
    real_world.api.apply(growing)
    try:
        with Stage(real_world, namespace, tmp_path, {"UPKEEP_INTERVAL": "500ms"}) as made:
            yield made
    finally:
        real_world.api.delete("StorageClass", None, namespace)
        real_world.api.delete("Namespace", None, namespace)


def starts_where_a_slice_of_other_addresses_is(stage: Stage) -> None:
    """Start where EndpointSlices of the other address family exist: they are recreated."""
    for name in SLICES:
        stage.api.create(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": name, "namespace": stage.namespace},
                "addressType": "IPv6",
                "endpoints": [],
            }
        )
    stage.start()
    for name in SLICES:
        wait_for(lambda name=name: (stage.api.find("EndpointSlice", stage.namespace, name) or {}).get("addressType")
                 == "IPv4", "the slice is of the operator's family")  # fmt: skip


def rolls_back_and_forth_over_a_restart(stage: Stage, app: App) -> None:
    """Roll out and back with a restart between: pods and revisions are deleted, and earlier events are counted."""
    app.apply(image="delays:2")
    app.runs()
    stage.operator.stop()
    stage.operator.start()
    for image in ("delays:1", "delays:2"):
        app.apply(image=image)
        app.runs()


def grows_volumes(stage: Stage, app: App) -> None:
    """Grow volumes: claims are patched, and the StatefulSet is recreated around its pods."""
    app.apply(state={"size": "2Gi", "storageClassName": stage.namespace})
    claims = f"millpond.dev/app={app.name}"
    wait_for(
        lambda: {each["spec"]["resources"]["requests"]["storage"]
                 for each in stage.api.list("PersistentVolumeClaim", stage.namespace, claims)} == {"2Gi"},
        "all volumes have grown",
    )  # fmt: skip
    app.runs()


def meets_a_conflict(stage: Stage, app: App) -> None:
    """Cause a conflict, after which the StreamApp is read again."""
    stage.proxy.answer(409, match=on("streamapps", "patch", subresource="status"))
    app.apply(replicas=3)
    app.runs()


def asks_why_containers_are_not_made(stage: Stage) -> None:
    """Cause pods whose problem is only visible in events."""
    app = stage.app("mounted")
    app.apply(pod={"mounts": [{"name": "tables", "path": "/data/tables", "configMap": "tables"}]})
    wait_for(lambda: app.condition("Degraded").get("reason") == "ConfigMapMissing", "it is told", otherwise=app.status)


def mends_its_certificate(stage: Stage) -> None:
    """Change the Secret of the certificate, which is restored."""
    before = stage.api.get("Secret", stage.namespace, SECRET)["data"]
    stage.api.patch("Secret", stage.namespace, SECRET, {"data": {"tls.crt": "eA=="}})
    wait_for(lambda: stage.api.get("Secret", stage.namespace, SECRET)["data"] == before, "it is as it was")


def makes_snapshots(stage: Stage, app: App) -> None:
    """Create a scheduled snapshot with executors; it is suspended manually, and deleted when it has finished."""
    over = threading.Event()
    stage.kubelets.images["spark:1"] = Image(snapshot_may_end=over.is_set)
    spark = {"image": "spark:1", "mode": "Executors"}
    app.apply(
        bootstrap={"location": "s3://a-b/c", "schedule": "* * * * *", "ttlSecondsAfterFinished": 0, "spark": spark}
    )

    def found() -> list[Object]:
        return stage.api.list("StateBootstrap", stage.namespace)

    wait_for(lambda: app.status().get("bootstrap"), "the schedule is accepted", otherwise=app.status)
    missed = {"status": {"bootstrap": {"since": "2026-01-01T00:00:00Z"}}}  # one is due now, not at the minute's end
    stage.api.patch("StreamApp", stage.namespace, app.name, missed, subresource="status")
    wait_for(found, "one is due", otherwise=app.status)
    app.apply(bootstrap={"location": "s3://a-b/c"})
    name = found()[0]["metadata"]["name"]
    wait_for(lambda: stage.api.find("Job", stage.namespace, f"{name}-snapshot"), "it has a Job", otherwise=found)
    stage.proxy.answer(409, match=on("statebootstraps", "patch", subresource="status"))
    for suspend in (True, False):
        stage.api.patch("StateBootstrap", stage.namespace, name, {"spec": {"suspend": suspend}})
        phase = "Suspended" if suspend else "Running"
        wait_for(lambda phase=phase: found()[0].get("status", {}).get("phase") == phase,
                 "it is as it was asked to be", otherwise=found)  # fmt: skip
    over.set()
    wait_for(lambda: not found(), "it is over, and goes", otherwise=found)


def cleans_up(app: App) -> None:
    """Delete a StreamApp whose Job deletes what it has in Kafka."""
    app.delete()
    wait_for(lambda: app.find() is None, "it is gone", otherwise=app.find)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_right_of_the_operator_is_used_and_none_is_missing(stage: Stage, api_server) -> None:
    """Each operation that needs a right of its own happens once."""
    starts_where_a_slice_of_other_addresses_is(stage)
    app = stage.app("delays")
    app.apply(deletion={"kafka": "Delete"}, state={"size": "1Gi", "storageClassName": stage.namespace})
    app.runs()
    rolls_back_and_forth_over_a_restart(stage, app)
    grows_volumes(stage, app)
    meets_a_conflict(stage, app)
    asks_why_containers_are_not_made(stage)
    mends_its_certificate(stage)
    makes_snapshots(stage, app)
    cleans_up(app)
    log = api_server.directory / LOG
    assert not refused(log, stage.namespace)
    done = used(log, stage.namespace)
    never = {right for right in granted(roles()) if not any(right.covers(each) for each in done)}
    assert never == ON_BEHALF


def test_owned_objects_need_the_right_to_the_finalizers(api, crds, namespace, api_server, background) -> None:
    """Where the API server enforces this, as OpenShift's does, the operator could not create objects without it."""
    spec = {"image": "pay:1", "topology": "app:pay", "kafka": {"bootstrapServers": "kafka:9092"}}
    app = api.create({"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp",
                      "metadata": {"name": "pay", "namespace": namespace}, "spec": spec})  # fmt: skip
    for name, rights in (("operator", [OWNERS]), ("nobody", [])):
        make_account(api, namespace, name, rights)

    def refusal(account: str) -> str:
        owner = {"apiVersion": app["apiVersion"], "kind": "StreamApp", "name": "pay", "uid": app["metadata"]["uid"],
                 "controller": True, "blockOwnerDeletion": True}  # fmt: skip
        owned = {"apiVersion": "v1", "kind": "ConfigMap",
                 "metadata": {"name": account, "namespace": namespace, "ownerReferences": [owner]}}  # fmt: skip
        with Api(background, api_server.service_account(api.token(namespace, account))) as client:
            try:
                client.create(owned)
            except ApiFailure as failure:
                assert failure.status == 403, failure
                return failure.message
        return ""

    wait_for(lambda: not refusal("operator"), "who may update finalizers may make what is owned")
    wait_for(lambda: "blockOwnerDeletion" in refusal("nobody"), "who may not, may not")


def make_account(api, namespace: str, name: str, rights: list[Right]) -> None:
    rules = [{"apiGroups": [right.group], "resources": [right.resource], "verbs": [right.verb]} for right in rights]
    metadata = {"name": name, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io"
    api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata,
               "rules": [*rules, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]})  # fmt: skip
    api.apply({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata,
               "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
               "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]})  # fmt: skip
