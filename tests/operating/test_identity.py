"""Rights on a real API server: a worker's token is for its own heartbeats, and the operator needs no cluster right."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from joserfc import jwt
from joserfc.jwk import ECKey

from millpond.protocol import clock
from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.apiserver import ISSUER
from tests.cluster.audit import LOG, Right, in_cluster, refused
from tests.cluster.waiting import wait_for
from tests.operating.installation import APP, Installation, install
from tests.operating.world import World

ACCEPTED, UNAUTHORIZED, FORBIDDEN = 400, 401, 403


@pytest.fixture(scope="module", params=["review", "keys"])
def installed(request: pytest.FixtureRequest, real_world: World, tmp_path_factory: Any) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("identity")
    with install(real_world, directory, namespaced=request.param == "keys") as made:
        for tenant in (made.shop, made.bank):
            made.create_app(tenant)
        for tenant in (made.shop, made.bank):
            made.await_ready(tenant)
        yield made


def encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def parts(token: str) -> tuple[Object, Object]:
    """Return the header and the claims of a token."""
    head, payload, _ = token.split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(each + "=" * (-len(each) % 4))) for each in (head, payload))
    return header, claims


def private_key(made: Installation) -> bytes:
    """Return the key with which the API server signs tokens."""
    return (made.world.server.directory / "service-accounts.key").read_bytes()


def signed(made: Installation, key: bytes | None = None, **changes: Any) -> str:
    """Return the token of worker 0 with other claims, signed by the API server's key or by another."""
    header, claims = parts(made.token(made.shop, f"{APP}-0"))
    assert header["alg"] == "ES256"
    signing = ECKey.import_key(key or private_key(made))
    return jwt.encode(header, claims | changes, signing, algorithms=["ES256"], default_type=None)


def without_algorithm(made: Installation) -> str:
    header, claims = parts(made.token(made.shop, f"{APP}-0"))
    return ".".join([*(encoded(json.dumps(each).encode()) for each in (header | {"alg": "none"}, claims)), "eA"])


def by_public_key(made: Installation) -> str:
    """Return a token that is signed with the public key as a shared secret."""
    header, claims = parts(made.token(made.shop, f"{APP}-0"))
    key = load_pem_private_key(private_key(made), None).public_key()
    public = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = ".".join(encoded(json.dumps(each).encode()) for each in (header | {"alg": "HS256"}, claims))
    return f"{text}.{encoded(hmac.digest(public, text.encode(), 'sha256'))}"


def of_a_pod_of_its_own(made: Installation) -> str:
    """Return the token of a pod that somebody made with the workers' service account and name."""
    spec = made.api.get("Pod", made.shop, f"{APP}-0")["spec"]
    container = {key: spec["containers"][0][key] for key in ("name", "image", "securityContext")}
    pod = {"serviceAccountName": APP, "securityContext": spec["securityContext"], "containers": [container]}
    metadata = {"name": f"{APP}-7", "namespace": made.shop}
    found = made.api.find("Pod", made.shop, f"{APP}-7")
    found = found or made.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})
    return made.api.token(made.shop, APP, "millpond-coordinator", found)


Make = Callable[[Installation], str | None]


@pytest.mark.parametrize(
    ("make", "worker", "status"),
    [
        pytest.param(lambda made: made.token(made.shop, "pay-0"), "pay-0", ACCEPTED, id="its own token"),
        pytest.param(signed, "pay-0", ACCEPTED, id="its own claims, signed by the API server's key"),
        pytest.param(lambda made: made.token(made.shop, "pay-1"), "pay-0", FORBIDDEN, id="another worker's token"),
        pytest.param(lambda made: made.token(made.bank, "pay-0"), "pay-0", FORBIDDEN, id="of another namespace"),
        pytest.param(lambda _: None, "pay-0", UNAUTHORIZED, id="no token"),
        pytest.param(lambda _: "eA.eA.eA", "pay-0", UNAUTHORIZED, id="no JSON Web Token"),
        pytest.param(lambda made: made.token(made.shop, "pay-0", None), "pay-0", UNAUTHORIZED, id="for the API server"),
        pytest.param(
            lambda made: made.token(made.shop, "pay-0", "other"), "pay-0", UNAUTHORIZED, id="another audience"
        ),
        pytest.param(
            lambda made: made.api.token(made.shop, APP, "millpond-coordinator"),
            "pay-0",
            UNAUTHORIZED,
            id="bound to no pod",
        ),
        pytest.param(of_a_pod_of_its_own, "pay-7", UNAUTHORIZED, id="of a pod that is no worker"),
        pytest.param(of_a_pod_of_its_own, "pay-0", UNAUTHORIZED, id="of a pod that is no worker, for a worker"),
        pytest.param(
            lambda made: signed(made, exp=int(clock.unix_time()) - 120, nbf=1, iat=1),
            "pay-0",
            UNAUTHORIZED,
            id="expired",
        ),
        pytest.param(
            lambda made: signed(made, nbf=int(clock.unix_time()) + 600), "pay-0", UNAUTHORIZED, id="not yet valid"
        ),
        pytest.param(lambda made: signed(made, iss="https://other"), "pay-0", UNAUTHORIZED, id="another issuer"),
        pytest.param(
            lambda made: signed(made, key=ECKey.generate_key("P-256").as_pem(private=True)),
            "pay-0",
            UNAUTHORIZED,
            id="signed by another key",
        ),
        pytest.param(without_algorithm, "pay-0", UNAUTHORIZED, id="no algorithm"),
        pytest.param(by_public_key, "pay-0", UNAUTHORIZED, id="HS256 with the public key"),
    ],
)
def test_worker_has_no_other_workers_name(installed: Installation, make: Make, worker: str, status: int) -> None:
    """Only a token that the API server signed for the pod of a worker is that worker's."""
    assert installed.heartbeat(make(installed), installed.shop, worker) == status


def test_token_of_a_deleted_pod_is_nobodys(installed: Installation) -> None:
    """Its successor has the same name and another token."""
    mine = installed.token(installed.bank, "pay-1")
    assert installed.heartbeat(mine, installed.bank, "pay-1") == ACCEPTED
    before = installed.api.get("Pod", installed.bank, "pay-1")["metadata"]["uid"]
    installed.api.delete("Pod", installed.bank, "pay-1")

    def replaced() -> bool:
        found = installed.api.find("Pod", installed.bank, "pay-1")
        return found is not None and found["metadata"]["uid"] != before

    wait_for(replaced, "it has a successor")
    wait_for(lambda: installed.heartbeat(mine, installed.bank, "pay-1") == UNAUTHORIZED, "its token is nobody's",
             poll_s=0.3)  # fmt: skip
    wait_for(lambda: installed.heartbeat(installed.token(installed.bank, "pay-1"), installed.bank, "pay-1") == ACCEPTED,
             "its successor's is its successor's", poll_s=0.3)  # fmt: skip


def status_of(client: Api, method: str, path: str, body: Object | None = None) -> int:
    try:
        client.request(method, path, body)
    except ApiFailure as failure:
        return failure.status
    return 200


def collections(api: Api, namespace: str) -> list[tuple[str, set[str]]]:
    """Return the paths of everything that the API server has, and the verbs that each supports."""
    groups = [("/api/v1", "v1")]
    for group in api.request("GET", "/apis")["groups"]:
        groups += [(f"/apis/{each['groupVersion']}", each["groupVersion"]) for each in group["versions"]]
    found = []
    for path, _ in groups:
        for each in api.request("GET", path)["resources"]:
            name, _, subresource = each["name"].partition("/")
            prefix = f"{path}/namespaces/{namespace}" if each["namespaced"] else path
            full = f"{prefix}/{name}/x/{subresource}" if subresource else f"{prefix}/{name}"
            found.append((full, set(each["verbs"])))
    return found


def test_workers_token_opens_nothing_in_the_api_server(installed: Installation) -> None:
    """It is for the coordinator only: the API server does not know its owner, and so denies everything."""
    token = installed.token(installed.shop, "pay-0")
    with Api(installed.api.background, installed.world.server.service_account(token)) as worker:
        for path in ("/api", "/apis", "/version", "/openid/v1/jwks"):
            assert status_of(worker, "GET", path) == UNAUTHORIZED
        for path, verbs in collections(installed.api, installed.shop):
            for verb, method in (("list", "GET"), ("get", "GET"), ("create", "POST")):
                if verb in verbs:
                    assert status_of(worker, method, path, None if method == "GET" else {}) == UNAUTHORIZED, path


def test_account_of_workers_has_no_right(installed: Installation) -> None:
    """Even with a token for the API server, which no worker has, it may read and write nothing."""
    token = installed.api.token(installed.shop, APP)
    with Api(installed.api.background, installed.world.server.service_account(token)) as account:
        for path, verbs in collections(installed.api, installed.shop):
            if "/self" in path:  # everybody may ask what they may do
                continue
            for verb, method in (("list", "GET"), ("get", "GET"), ("create", "POST"), ("deletecollection", "DELETE")):
                if verb in verbs:
                    status = status_of(account, method, path, None if method == "GET" else {})
                    assert status == FORBIDDEN, (verb, path)
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                 "spec": {"namespace": installed.shop}}  # fmt: skip
        rules = account.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", asked)["status"]
        resources = {(verb, name) for rule in rules["resourceRules"] for verb in rule["verbs"]
                     for name in rule["resources"]}  # fmt: skip
        assert {verb for verb, _ in resources} == {"create"}
        assert {name for _, name in resources} == {"selfsubjectaccessreviews", "selfsubjectrulesreviews",
                                                   "selfsubjectreviews"}  # fmt: skip
        assert {verb for rule in rules["nonResourceRules"] for verb in rule["verbs"]} == {"get"}


def test_pods_have_no_token_but_the_coordinators(installed: Installation) -> None:
    """Their namespaces enforce the restricted standard."""
    for pod in installed.api.list("Pod", installed.shop, f"millpond.dev/app={APP}"):
        assert pod["spec"]["automountServiceAccountToken"] is False
        sources = [each for volume in pod["spec"]["volumes"] for each in volume.get("projected", {}).get("sources", ())]
        tokens = [each["serviceAccountToken"]["audience"] for each in sources if "serviceAccountToken" in each]
        assert tokens == ["millpond-coordinator"]
    assert parts(installed.token(installed.shop, "pay-0"))[1]["iss"] == ISSUER


def test_operator_asks_for_no_more_than_token_reviews_in_the_cluster(installed: Installation) -> None:
    """With keys it asks for nothing: all its rights are Roles in the namespaces that it serves, and its own names."""
    by_keys = installed.operator.environment().get("MILLPOND_OPERATOR_TOKEN_VERIFICATION") == "keys"
    api, shop = installed.api, installed.shop
    spark = {"image": "spark:1", "mode": "Executors"}
    spec = {"streamApp": APP, "location": "s3://a-b/c", "spark": spark}
    api.apply({"apiVersion": "millpond.dev/v1alpha1", "kind": "StateBootstrap",
               "metadata": {"name": "once", "namespace": shop}, "spec": spec})  # fmt: skip
    installed.create_app(shop, replicas=3)

    def phase() -> str:
        return str((api.find("StateBootstrap", shop, "once") or {}).get("status", {}).get("phase"))

    wait_for(lambda: phase() == "Succeeded", "the snapshot is made", otherwise=phase)
    wait_for(lambda: api.get("StatefulSet", shop, APP)["spec"]["replicas"] == 3, "it is scaled")
    installed.await_ready(shop)
    role = api.get("RoleBinding", shop, "once-snapshot-executors")["roleRef"]
    assert role["kind"] == ("Role" if by_keys else "ClusterRole")
    log = installed.world.server.directory / LOG
    assert not refused(log, installed.system)
    reviews = set() if by_keys else {Right("create", "authentication.k8s.io", "tokenreviews")}
    assert in_cluster(log, installed.system) == reviews
    if by_keys:
        for kind, name in (("Lease", "blue"), ("EndpointSlice", "blue-coordinator"), ("Secret", "blue-tls")):
            assert api.find(kind, installed.system, name)
        account = f"system:serviceaccount:{installed.system}:millpond-operator"
        for binding in api.list("ClusterRoleBinding"):
            subjects = {f"system:serviceaccount:{each.get('namespace')}:{each['name']}"
                        for each in binding.get("subjects", ())}  # fmt: skip
            assert account not in subjects
