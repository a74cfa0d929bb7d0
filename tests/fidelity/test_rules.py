"""The rules that the operator depends on hold on the API server in memory and on the real one."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.cluster.api import Api, ApiFailure, AsyncApi, Object, path_of
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.memory import SharedMemoryApiServer
from tests.fidelity.comparing import namespace_on
from tests.fidelity.objects import config_map, names, owner_of, refusal
from tests.support.kafka import eventually

_SOON_S = 60.0
#: Its controller works off a queue, with longer and longer pauses after an answer that failed.
_CONTROLLED_S = 240.0
Server = SharedApiServer | SharedMemoryApiServer


# Lists and watches.


def test_pages_of_a_list_are_of_one_moment(client: Api, space: str) -> None:
    """A write between two pages is not in the second page."""
    for name in "abc":
        client.create(config_map(space, name, metadata={"labels": {"x": "y"}}))
    path = path_of("ConfigMap", space)
    first = client.request("GET", path, limit="2", labelSelector="x=y")
    assert names(first["items"]) == ["a", "b"]
    client.delete("ConfigMap", space, "c")
    client.create(config_map(space, "d", metadata={"labels": {"x": "y"}}))
    token = first["metadata"]["continue"]
    second = client.request("GET", path, limit="2", labelSelector="x=y", **{"continue": token})
    assert names(second["items"]) == ["c"]
    assert "continue" not in second["metadata"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_list_can_be_of_a_former_version(client: Api, space: str) -> None:
    """A list of an earlier version works as long as the server keeps that version."""
    made = client.create(config_map(space, data={"a": "1"}))
    client.patch("ConfigMap", space, "a", {"data": {"a": "2"}})
    query = {
        "resourceVersion": made["metadata"]["resourceVersion"],
        "resourceVersionMatch": "Exact",
        "fieldSelector": "metadata.name=a",
    }
    found = client.request("GET", path_of("ConfigMap", space), **query)
    assert [each["data"] for each in found["items"]] == [{"a": "1"}]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("x=y", "a"),
        ("x!=y", "bc"),
        ("x", "ab"),
        ("!x", "c"),
        ("x in (y,z)", "ab"),
        ("x notin (y),x", "b"),
        ("x=y,w=v", ""),
    ],
)
def test_label_selectors_select(selector: str, found: str, client: Api, space: str) -> None:
    """All forms of label selectors work."""
    for name, labels in {"a": {"x": "y"}, "b": {"x": "z"}, "c": {"w": "v"}}.items():
        client.create(config_map(space, name, metadata={"labels": labels}))
    listed = names(client.list("ConfigMap", space, selector))
    assert [each for each in listed if len(each) == 1] == list(found)


def follow(background: Background, server: Server, space: str, version: str, changes: int, **query: str) -> list[Any]:
    """The next changes since a version: type, name and data."""

    async def work() -> list[Any]:
        told: list[Any] = []
        async with AsyncApi(server.admin) as api, asyncio.timeout(_SOON_S):
            async for change, item in api.watch("ConfigMap", version, space, **query):
                if change == "BOOKMARK":
                    continue
                told.append((change, item["metadata"]["name"], item.get("data")))
                if len(told) == changes:
                    break
        return told

    return background.call(work())


def test_a_watch_tells_all_that_happened_since_a_version(
    server: Server, client: Api, background: Background, space: str
) -> None:
    """A watch delivers one change after the other, and none for writes without a change."""
    version = client.request("GET", path_of("ConfigMap", space))["metadata"]["resourceVersion"]
    client.create(config_map(space, data={"a": "1"}))
    client.patch("ConfigMap", space, "a", {"data": {"a": "2"}})
    client.patch("ConfigMap", space, "a", {"data": {"a": "2"}})
    client.apply(config_map(space, "b"))
    client.apply(config_map(space, "b"))
    client.delete("ConfigMap", space, "a")
    assert follow(background, server, space, version, 4, fieldSelector="metadata.name!=kube-root-ca.crt") == [
        ("ADDED", "a", {"a": "1"}),
        ("MODIFIED", "a", {"a": "2"}),
        ("ADDED", "b", None),
        ("DELETED", "a", {"a": "2"}),
    ]


def test_a_watch_with_a_selector_tells_of_comers_and_goers(
    server: Server, client: Api, background: Background, space: str
) -> None:
    """An object that gets the label is added; one that loses it is deleted, in its last version."""
    version = client.request("GET", path_of("ConfigMap", space))["metadata"]["resourceVersion"]
    client.create(config_map(space, data={"a": "1"}))
    client.patch("ConfigMap", space, "a", {"metadata": {"labels": {"x": "y"}}})
    client.patch("ConfigMap", space, "a", {"metadata": {"labels": None}, "data": {"a": "2"}})
    assert follow(background, server, space, version, 2, labelSelector="x=y") == [
        ("ADDED", "a", {"a": "1"}),
        ("DELETED", "a", {"a": "1"}),
    ]


def test_a_watch_may_begin_with_what_there_is(server: Server, client: Api, background: Background, space: str) -> None:
    """A watch from version 0 begins with the existing objects."""
    client.create(config_map(space, data={"a": "1"}))
    assert follow(background, server, space, "0", 1, fieldSelector="metadata.name=a") == [("ADDED", "a", {"a": "1"})]


# Writing.


def test_a_dry_run_writes_nothing(client: Api, space: str) -> None:
    """A dry run writes nothing and has the answer of a real write."""
    made = client.apply(config_map(space, data={"a": "1"}), dry_run=True)
    assert made["data"] == {"a": "1"}
    assert client.find("ConfigMap", space, "a") is None


def test_what_exists_is_not_created_again(client: Api, space: str) -> None:
    """Creating an existing object and patching a missing one are errors."""
    client.create(config_map(space))
    failure = refusal(lambda: client.create(config_map(space)))
    assert (failure.status, failure.reason) == (409, "AlreadyExists")
    failure = refusal(lambda: client.patch("ConfigMap", space, "b", {"data": {}}))
    assert (failure.status, failure.reason, failure.message) == (404, "NotFound", 'configmaps "b" not found')
    failure = refusal(lambda: client.create(config_map("not-there")))
    assert (failure.status, failure.reason, failure.message) == (404, "NotFound", 'namespaces "not-there" not found')


def test_names_are_generated(client: Api, space: str) -> None:
    """Names are generated from a prefix."""
    given = config_map(space)
    given["metadata"] = {"namespace": space, "generateName": "a-"}
    made = client.create(given)["metadata"]
    assert made["name"].startswith("a-")
    assert len(made["name"]) == len("a-") + 5


def test_applying_to_a_version_that_was_is_a_conflict(client: Api, space: str) -> None:
    """Server-side apply with an old version is a conflict; for a new object any version is accepted."""
    made = client.apply(config_map(space, data={"a": "1"}))
    client.patch("ConfigMap", space, "a", {"data": {"a": "2"}})
    version = made["metadata"]["resourceVersion"]
    failure = refusal(lambda: client.apply(config_map(space, data={"a": "3"}, metadata={"resourceVersion": version})))
    assert (failure.status, failure.reason) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in failure.message


def test_a_conflict_of_managers_names_them(client: Api, space: str) -> None:
    """Without force, a conflict names the manager that owns the field."""
    client.apply(config_map(space, data={"a": "1"}), manager="one")
    content, path = "application/apply-patch+yaml", path_of("ConfigMap", space, "a")
    given = config_map(space, data={"a": "2"})
    failure = refusal(lambda: client.request("PATCH", path, given, content=content, fieldManager="two"))
    assert (failure.status, failure.reason) == (409, "Conflict")
    assert failure.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'


def test_epochs_and_terms_never_go_back(client: Api, space: str) -> None:
    """A former leader cannot overwrite a newer leader's writes."""
    spec = {"image": "i", "topology": "a:b", "kafka": {"bootstrapServers": "k:9092"}}
    app: Object = {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "spec": spec}
    app["metadata"] = {"name": "a", "namespace": space}
    client.create(app)
    told: Object = {**app, "status": {"leaderEpoch": 5}}
    del told["spec"]
    client.apply(told, subresource="status")
    failure = refusal(lambda: client.apply({**told, "status": {"leaderEpoch": 4}}, subresource="status"))
    assert (failure.status, failure.reason) == (422, "Invalid")
    assert "status.leaderEpoch" in failure.message
    assert client.get("StreamApp", space, "a")["status"] == {"leaderEpoch": 5}
    assignment = {**app, "kind": "StreamAssignment", "spec": {"application": "a", "term": 2, "number": 3}}
    client.apply(assignment)
    older = {**assignment, "spec": {"application": "a", "term": 1, "number": 9}}
    assert refusal(lambda: client.apply(older)).status == 422
    client.apply({**assignment, "spec": {"application": "a", "term": 3, "number": 0}})


def test_the_scale_of_a_custom_resource_is_its_replicas(client: Api, space: str) -> None:
    """The scale can be read and written."""
    spec = {"image": "i", "topology": "a:b", "kafka": {"bootstrapServers": "k:9092"}}
    metadata = {"name": "a", "namespace": space}
    client.create({"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": spec})
    client.scale("StreamApp", space, "a", 3)
    assert client.get("StreamApp", space, "a")["spec"]["replicas"] == 3
    assert client.get("StreamApp", space, "a")["metadata"]["generation"] == 2
    assert client.request("GET", path_of("StreamApp", space, "a", "scale"))["spec"] == {"replicas": 3}


# Deleting.


def test_finalizers_are_waited_for(client: Api, space: str) -> None:
    """The object is deleted with its last finalizer, and no new ones can be added."""
    client.create(config_map(space, metadata={"finalizers": ["example.com/a"]}))
    client.delete("ConfigMap", space, "a")
    leaving = client.get("ConfigMap", space, "a")["metadata"]
    assert "deletionTimestamp" in leaving
    assert leaving["deletionGracePeriodSeconds"] == 0
    more = {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}
    assert refusal(lambda: client.patch("ConfigMap", space, "a", more)).status == 422
    client.patch("ConfigMap", space, "a", {"metadata": {"finalizers": None}})
    assert client.find("ConfigMap", space, "a") is None


def test_another_uid_is_not_deleted(client: Api, space: str) -> None:
    """A deletion with a uid does not delete a new object of that name."""
    client.create(config_map(space))
    failure = refusal(lambda: client.delete("ConfigMap", space, "a", preconditions={"uid": "b"}))
    assert (failure.status, failure.reason) == (409, "Conflict")
    assert "the UID in the precondition (b) does not match the UID in record" in failure.message


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_dependents_go_as_they_are_told(policy: str, client: Api, space: str) -> None:
    """Dependents are deleted with their owner, before it, or not at all."""
    owner = client.create(config_map(space, "owner"))
    references = [owner_of(owner, blockOwnerDeletion=True)]
    metadata = {"ownerReferences": references, "finalizers": ["example.com/a"]}
    client.create(config_map(space, "dependent", metadata=metadata))
    client.delete("ConfigMap", space, "owner", propagationPolicy=policy)
    if policy == "Orphan":
        eventually(lambda: client.find("ConfigMap", space, "owner") is None, "the owner is gone")
        left = client.get("ConfigMap", space, "dependent")["metadata"]
        assert "deletionTimestamp" not in left
        assert "ownerReferences" not in left
        return
    eventually(
        lambda: "deletionTimestamp" in client.get("ConfigMap", space, "dependent")["metadata"], "the dependent goes"
    )
    assert (client.find("ConfigMap", space, "owner") is None) == (policy == "Background")
    client.patch("ConfigMap", space, "dependent", {"metadata": {"finalizers": None}})
    eventually(lambda: client.find("ConfigMap", space, "owner") is None, "the owner is gone")


def test_a_dependent_of_nobody_is_collected(client: Api, space: str) -> None:
    """A dependent without owners is deleted; one with a remaining owner stays, without the other reference."""
    owner = client.create(config_map(space, "owner"))
    gone = {**owner_of(owner), "name": "gone", "uid": "5d6b5ee4-4b9c-4b1e-9d2c-111111111111"}
    client.create(config_map(space, "lost", metadata={"ownerReferences": [gone]}))
    client.create(config_map(space, "kept", metadata={"ownerReferences": [gone, owner_of(owner)]}))
    eventually(lambda: client.find("ConfigMap", space, "lost") is None, "what belongs to nobody goes")
    eventually(
        lambda: len(client.get("ConfigMap", space, "kept")["metadata"]["ownerReferences"]) == 1,
        "the other is forgotten",
    )


def test_a_pod_on_a_node_gets_time_to_end(client: Api, space: str) -> None:
    """A pod without a node is deleted at once; a second deletion can only shorten the grace period."""
    spec = {"containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 10}
    for name in ("a", "b"):
        client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}, "spec": spec})
    target = {"apiVersion": "v1", "kind": "Node", "name": "some-node"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": target}
    client.request("POST", f"{path_of('Pod', space, 'a')}/binding", binding)
    assert client.get("Pod", space, "a")["spec"]["nodeName"] == "some-node"
    assert refusal(lambda: client.request("POST", f"{path_of('Pod', space, 'a')}/binding", binding)).status == 409
    for name in ("a", "b"):
        client.delete("Pod", space, name)
    assert client.find("Pod", space, "b") is None
    leaving = client.get("Pod", space, "a")["metadata"]
    assert leaving["deletionGracePeriodSeconds"] == 10
    client.delete("Pod", space, "a", gracePeriodSeconds=0)
    assert client.find("Pod", space, "a") is None


@pytest.mark.timeout(600)
def test_a_namespace_goes_with_all_that_is_in_it(client: Api) -> None:
    """A namespace is deleted with its objects, and accepts no new ones meanwhile."""
    with namespace_on(client) as space:
        client.create(config_map(space, metadata={"finalizers": ["example.com/a"]}))
        client.delete("Namespace", None, space)

        def told() -> str:
            return f"its objects go: {client.find('Namespace', None, space)}"

        eventually(lambda: "deletionTimestamp" in client.get("ConfigMap", space, "a")["metadata"], told, _CONTROLLED_S)
        failure = refusal(lambda: client.create(config_map(space, "b")))
        assert (failure.status, failure.reason) == (403, "Forbidden")
        client.patch("ConfigMap", space, "a", {"metadata": {"finalizers": None}})
        eventually(lambda: client.find("Namespace", None, space) is None, told, _CONTROLLED_S)


def test_a_pod_needs_its_priority_class(client: Api, space: str) -> None:
    """A pod with a missing priority class is rejected, and an event of the StatefulSet has the error."""
    pod = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": space},
        "spec": {"priorityClassName": "gold", "containers": [{"name": "c", "image": "i:1"}]},
    }  # fmt: skip
    failure = refusal(lambda: client.create(pod))
    assert (failure.status, failure.reason) == (403, "Forbidden")
    assert failure.message == 'pods "p" is forbidden: no PriorityClass with name gold was found'


# Who may do what.


def test_a_token_is_good_as_long_as_its_pod_is_there(client: Api, space: str) -> None:
    """A token is valid for its audience while its pod exists, and names the pod."""
    spec = {"containers": [{"name": "c", "image": "i:1"}]}
    pod = client.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": space}, "spec": spec}
    )
    token = client.token(space, "default", "somebody", pod)
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == f"system:serviceaccount:{space}:default"

    def review(audience: str) -> Object:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
        answer = client.request(
            "POST", path_of("TokenReview"), {**review, "spec": {"token": token, "audiences": [audience]}}
        )
        status: Object = answer["status"]
        return status

    good = review("somebody")
    assert good["authenticated"] is True
    assert good["audiences"] == ["somebody"]
    assert good["user"]["username"] == f"system:serviceaccount:{space}:default"
    assert good["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert not review("somebody-else").get("authenticated")
    client.delete("Pod", space, "p", gracePeriodSeconds=0)
    eventually(lambda: not review("somebody").get("authenticated"), "the token is not good any more")


def test_a_service_account_may_do_what_its_role_says(
    server: Server, client: Api, background: Background, space: str
) -> None:
    """And nothing else, and nowhere else."""
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "w", "namespace": space}})
    with Api(background, server.service_account(client.token(space, "w"))) as worker:
        failure = refusal(lambda: worker.list("ConfigMap", space))
        assert (failure.status, failure.reason) == (403, "Forbidden")
        assert (
            f'User "system:serviceaccount:{space}:w" cannot list resource "configmaps" in API group ""'
            in failure.message
        )
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]
        version = "rbac.authorization.k8s.io/v1"
        metadata = {"name": "w", "namespace": space}
        client.create({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules})
        client.create(
            {
                "apiVersion": version,
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "w"},
                "subjects": [{"kind": "ServiceAccount", "name": "w", "namespace": space}],
            }
        )
        client.create(config_map(space))

        def allowed() -> bool:
            try:
                return worker.find("ConfigMap", space, "a") is not None
            except ApiFailure:
                return False

        eventually(allowed, "the role is known")
        assert refusal(lambda: worker.get("ConfigMap", space, "b")).status == 403
        assert refusal(lambda: worker.delete("ConfigMap", space, "a")).status == 403


@pytest.mark.parametrize("path", ["/version", "/api/v1", "/apis/apps/v1", "/apis/millpond.dev/v1alpha1"])
def test_discovery_says_what_is_served(path: str, client: Api) -> None:
    """Discovery has the resources in the form that kopf reads."""
    found = client.request("GET", path)
    if path == "/version":
        assert (found["major"], found["minor"]) == ("1", "34")
        return
    assert found["kind"] == "APIResourceList"
    wanted = {"/api/v1": "pods", "/apis/apps/v1": "statefulsets", "/apis/millpond.dev/v1alpha1": "streamapps"}[path]
    (one,) = (each for each in found["resources"] if each["name"] == wanted)
    assert one["namespaced"] is True
    assert {"list", "watch", "patch"} <= set(one["verbs"])
    assert f"{wanted}/status" in {each["name"] for each in found["resources"]}
