"""Controllers do the same on the API server in memory and on the real one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Api, Object, path_of
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.memory import SharedMemoryApiServer
from tests.fidelity.objects import names, owner_of, refusal, stateful_set
from tests.support.kafka import eventually

_SOON_S = 5.0
Server = SharedApiServer | SharedMemoryApiServer


# Controllers.


def status_of(client: Api, space: str) -> Object:
    found = client.get("StatefulSet", space, "s")
    status: Object = found.get("status", {})
    return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}


def make_ready(client: Api, space: str, name: str) -> None:
    conditions = [{"type": "Ready", "status": "True"}]
    client.patch("Pod", space, name, {"status": {"phase": "Running", "conditions": conditions}}, subresource="status")


def test_a_stateful_set_has_its_pods_and_claims(client: Api, space: str) -> None:
    """Pods and claims have names, labels, volumes and owners; fewer replicas delete the last pods, claims stay."""
    client.apply(stateful_set(space))
    eventually(lambda: status_of(client, space).get("replicas") == 2, "there are pods")
    pods = client.list("Pod", space)
    made = client.get("StatefulSet", space, "s")
    assert names(pods) == ["s-0", "s-1"]
    for number, pod in enumerate(pods):
        revision = made["status"]["updateRevision"]
        assert pod["metadata"]["labels"] == {
            "s": "t",
            "apps.kubernetes.io/pod-index": str(number),
            "controller-revision-hash": revision,
            "statefulset.kubernetes.io/pod-name": f"s-{number}",
        }
        assert pod["metadata"]["ownerReferences"] == [owner_of(made, controller=True, blockOwnerDeletion=True)]
        assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": f"state-s-{number}"}
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (f"s-{number}", "s")
        make_ready(client, space, f"s-{number}")
    eventually(lambda: status_of(client, space).get("readyReplicas") == 2, "they are counted")
    client.scale("StatefulSet", space, "s", 1)
    eventually(lambda: names(client.list("Pod", space)) == ["s-0"], "the last pod goes")
    assert names(client.list("PersistentVolumeClaim", space)) == ["state-s-0", "state-s-1"]


def test_a_new_template_waits_until_a_pod_is_deleted(client: Api, space: str) -> None:
    """With OnDelete only a new pod has the new revision; the others stay unchanged."""
    client.apply(stateful_set(space))
    eventually(lambda: status_of(client, space).get("currentReplicas") == 2, "there are pods")
    first = status_of(client, space)
    newer = stateful_set(space)
    newer["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2"
    client.apply(newer)
    eventually(
        lambda: status_of(client, space).get("updateRevision", first["updateRevision"]) != first["updateRevision"],
        "it is seen",
    )
    then = status_of(client, space)
    assert (then["currentRevision"], then["currentReplicas"]) == (first["currentRevision"], 2)
    assert then.get("updatedReplicas", 0) == 0
    uid = client.get("Pod", space, "s-1")["metadata"]["uid"]
    client.delete("Pod", space, "s-1")
    eventually(lambda: status_of(client, space).get("updatedReplicas") == 1, "one pod is new")
    pod = client.get("Pod", space, "s-1")
    assert pod["metadata"]["uid"] != uid
    assert pod["metadata"]["labels"]["controller-revision-hash"] == then["updateRevision"]
    assert pod["spec"]["containers"][0]["image"] == "i:2"
    client.apply(stateful_set(space))
    eventually(lambda: status_of(client, space).get("updateRevision") == first["updateRevision"], "it is gone back to")
    revisions = client.list("ControllerRevision", space)
    assert sorted(each["revision"] for each in revisions) == [2, 3]


@pytest.mark.parametrize(("deleted", "scaled"), [("Delete", "Retain"), ("Retain", "Delete"), ("Delete", "Delete")])
def test_claims_belong_to_whom_the_policy_says(deleted: str, scaled: str, client: Api, space: str) -> None:
    """Claims belong to the set, or to a surplus pod, by the policy."""
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    client.apply(stateful_set(space, persistentVolumeClaimRetentionPolicy=policy))

    def owners() -> dict[str, list[str]]:
        found = client.list("PersistentVolumeClaim", space)
        return {
            each["metadata"]["name"]: [owner["kind"] for owner in each["metadata"].get("ownerReferences", ())]
            for each in found
            if "deletionTimestamp" not in each["metadata"]
        }

    mine = ["StatefulSet"] if deleted == "Delete" else []
    eventually(lambda: owners() == {"state-s-0": mine, "state-s-1": mine}, "they belong to the set")
    client.scale("StatefulSet", space, "s", 1)
    left = {"state-s-0": mine} | ({"state-s-1": mine} if scaled == "Retain" else {})
    eventually(lambda: owners() == left, "the last one goes, or stays")


def test_a_set_that_is_made_anew_adopts_its_pods(client: Api, space: str) -> None:
    """After deletion with Orphan, pods and revisions stay, and the new set adopts them."""
    client.apply(stateful_set(space))
    eventually(lambda: status_of(client, space).get("replicas") == 2, "there are pods")
    before = {each["metadata"]["name"]: each["metadata"]["uid"] for each in client.list("Pod", space)}
    client.delete("StatefulSet", space, "s", propagationPolicy="Orphan")
    eventually(lambda: client.find("StatefulSet", space, "s") is None, "the set is gone")
    assert all("ownerReferences" not in each["metadata"] for each in client.list("Pod", space))
    again = client.apply(stateful_set(space))

    def adopted() -> bool:
        owner = [owner_of(again, controller=True, blockOwnerDeletion=True)]
        pods = client.list("Pod", space)
        now = {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods}
        return now == before and all(each["metadata"].get("ownerReferences") == owner for each in pods)

    eventually(adopted, "the pods are adopted")


def test_most_of_a_stateful_set_stays_as_it_is(client: Api, space: str) -> None:
    """Changes of immutable fields are rejected."""
    client.apply(stateful_set(space, 0))
    failure = refusal(lambda: client.apply(stateful_set(space, 0, serviceName="other")))
    assert (failure.status, failure.reason) == (422, "Invalid")
    assert "updates to statefulset spec for fields other than 'replicas'" in failure.message
    client.apply(stateful_set(space, 0, revisionHistoryLimit=3))


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
        ({"type": "RollingUpdate"}, {"type": "RollingUpdate"}),
        ({"type": "RollingUpdate", "rollingUpdate": {}}, {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}),
    ],
)
def test_a_strategy_that_was_changed_is_put_back_by_applying(
    given: Object, made: Object, client: Api, space: str
) -> None:
    """A manifest can be applied unless a field remains that OnDelete does not allow."""
    found = client.create(stateful_set(space, 0, updateStrategy=given))
    assert found["spec"]["updateStrategy"] == made
    if "rollingUpdate" in made:
        failure = refusal(lambda: client.apply(stateful_set(space, 0)))
        assert failure.status == 422
        assert "only allowed for updateStrategy 'RollingUpdate'" in failure.message
    else:
        assert client.apply(stateful_set(space, 0))["spec"]["updateStrategy"] == {"type": "OnDelete"}


def job(space: str, **spec: Any) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": space},
        "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}},
            **spec,
        },
    }


@pytest.mark.parametrize(("phase", "type"), [("Succeeded", "Complete"), ("Failed", "Failed")])
def test_a_job_ends_as_its_pod_does(phase: str, type: str, client: Api, space: str) -> None:
    """A Job's conditions have its pod's result."""
    client.create(job(space, backoffLimit=0))
    eventually(lambda: client.list("Pod", space), "there is a pod")
    (pod,) = client.list("Pod", space)
    client.patch("Pod", space, pod["metadata"]["name"], {"status": {"phase": phase}}, subresource="status")

    def conditions() -> set[str]:
        found = client.get("Job", space, "j").get("status", {}).get("conditions", ())
        return {each["type"] for each in found if each["status"] == "True"}

    eventually(lambda: type in conditions(), f"the job is {type}")
    status = client.get("Job", space, "j")["status"]
    assert status.get(phase.lower()) == 1
    assert "active" not in status
    assert "finalizers" not in client.get("Pod", space, pod["metadata"]["name"])["metadata"]


def test_a_job_has_a_deadline(client: Api, space: str) -> None:
    """After its deadline a Job has failed, and its pods are deleted."""
    client.create(job(space, activeDeadlineSeconds=1))

    def reasons() -> set[str]:
        found = client.get("Job", space, "j").get("status", {}).get("conditions", ())
        return {each["reason"] for each in found if each["type"] == "Failed"}

    eventually(lambda: reasons() == {"DeadlineExceeded"}, "the job has failed")
    eventually(lambda: not client.list("Pod", space), "its pod is gone")


def test_a_budget_counts_pods_that_are_ready(client: Api, space: str) -> None:
    """A budget counts ready pods, and allows the eviction of one."""
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"s": "t"}}}
    metadata = {"name": "s", "namespace": space}
    client.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec})
    client.apply(stateful_set(space))
    eventually(lambda: len(client.list("Pod", space)) == 2, "there are pods")
    for number in range(2):
        make_ready(client, space, f"s-{number}")

    def counted() -> list[int]:
        status = client.get("PodDisruptionBudget", space, "s").get("status", {})
        return [status.get(each) for each in ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed")]

    eventually(lambda: counted() == [2, 1, 2, 1], "they are counted")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "s-0", "namespace": space}}
    client.request("POST", f"{path_of('Pod', space, 's-0')}/eviction", eviction)
