"""Generated writes by several managers end in the same objects on the API server in memory and on the real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cluster.api import Api, Object, path_of
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.fidelity.comparing import Twins, outcome, twin_servers

_MANAGERS = st.sampled_from(["one", "two", "three"])
_WORD = st.sampled_from(["a", "b", ""])
_NAME = st.sampled_from(["a", "b", "c"])
_AMOUNT = st.sampled_from(["1", "500m", "1Gi"])
_CASES = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    return st.fixed_dictionaries({}, optional=fields)


_LABELS = st.dictionaries(_NAME, _WORD, max_size=3)
_METADATA = _some(
    labels=_LABELS,
    annotations=_LABELS,
    finalizers=st.lists(st.sampled_from(["example.com/a", "example.com/b"]), unique=True, max_size=2),
)
_ENV = st.lists(
    st.builds(lambda name, rest: {"name": name, **rest}, _NAME, _some(value=_WORD)),
    unique_by=lambda each: each["name"],
    max_size=3,
)
_CONTAINER = st.builds(
    lambda name, rest: {"name": name, "image": f"{name}:1", **rest},
    st.sampled_from(["x", "y"]),
    _some(
        env=_ENV,
        args=st.lists(_WORD, max_size=2),
        resources=_some(requests=st.dictionaries(st.sampled_from(["cpu", "memory"]), _AMOUNT, max_size=2)),
        ports=st.lists(
            st.builds(
                lambda port, rest: {"containerPort": port, **rest},
                st.sampled_from([80, 81]),
                _some(protocol=st.sampled_from(["TCP", "UDP"])),
            ),
            unique_by=lambda each: (each["containerPort"], each.get("protocol", "TCP")),
            max_size=2,
        ),
    ),
)
_POD = st.builds(
    lambda containers, rest: {"containers": containers, **rest},
    st.lists(_CONTAINER, min_size=1, max_size=2, unique_by=lambda each: each["name"]),
    _some(
        nodeSelector=_LABELS,
        terminationGracePeriodSeconds=st.sampled_from([0, 10]),
        tolerations=st.lists(st.just({"operator": "Exists"}), max_size=1),
        imagePullSecrets=st.lists(
            st.builds(lambda name: {"name": name}, _NAME), max_size=2, unique_by=lambda each: each["name"]
        ),
    ),
)


def _set(replicas: Object, pod: Object) -> Object:
    return {
        "serviceName": "a",
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": {"s": "t"}},
        "template": {"metadata": {"labels": {"s": "t"}}, "spec": pod},
        **replicas,
    }


_BODIES: dict[str, tuple[str, st.SearchStrategy[Object]]] = {
    "ConfigMap": ("v1", _some(data=_LABELS, immutable=st.just(False))),
    "StatefulSet": (
        "apps/v1",
        st.builds(lambda *parts: {"spec": _set(*parts)}, _some(replicas=st.just(0)), _POD),
    ),
    "StreamApp": (
        "millpond.dev/v1alpha1",
        st.builds(
            lambda rest: {
                "spec": {"image": "i", "topology": "a:b", "kafka": {"bootstrapServers": "k:9092"}, **rest},
            },
            _some(
                replicas=st.sampled_from([0, 1, 2]),
                env=_ENV.map(lambda items: [{"value": "", **each} for each in items]),
                config=_LABELS,
                pod=_some(labels=_LABELS, tolerations=st.lists(st.just({"operator": "Exists"}), max_size=1)),
                unknown=_WORD,
            ),
        ),
    ),
}


def _write(kind: str) -> st.SearchStrategy[tuple[str, str, Object]]:
    """A write: its verb, its manager and its parts of the object."""
    body = st.builds(lambda metadata, rest: {"metadata": metadata, **rest}, _METADATA, _BODIES[kind][1])
    return st.tuples(st.sampled_from(["apply", "apply", "apply gently", "merge", "replace", "delete"]), _MANAGERS, body)


@pytest.fixture(scope="module")
def twins(background: Background, api_server: SharedApiServer) -> Iterator[Twins]:
    """Both servers."""
    with twin_servers(background, api_server) as both:
        yield both


def _done(api: Api, namespace: str, kind: str, how: str, manager: str, body: Object) -> Any:
    metadata = {**body["metadata"], "name": "a", "namespace": namespace}
    item: Object = {"apiVersion": _BODIES[kind][0], "kind": kind, **body, "metadata": metadata}
    match how:
        case "apply":
            return api.apply(item, manager=manager)
        case "apply gently":
            path = _path(kind, namespace)
            content = "application/apply-patch+yaml"
            return api.request("PATCH", path, item, content=content, fieldManager=manager)
        case "merge":
            path, content = _path(kind, namespace), "application/merge-patch+json"
            return api.request("PATCH", path, body, content=content, fieldManager=manager)
        case "replace":
            there = api.get(kind, namespace, "a")["metadata"]  # what controllers write to may be another version by now
            version = {"resourceVersion": there["resourceVersion"]} if kind == "StreamApp" else {}
            made = {**item, "metadata": {**metadata, **version}}
            return api.request("PUT", _path(kind, namespace), made, fieldManager=manager)
    api.delete(kind, namespace, "a")
    return api.find(kind, namespace, "a") is None


def _path(kind: str, namespace: str) -> str:
    return path_of(kind, namespace, "a")


@pytest.mark.parametrize("kind", _BODIES)
def test_any_writes_by_several_managers_end_alike(kind: str, twins: Twins) -> None:
    """Field owners, pruned fields and conflicts are the same on both servers."""

    @_CASES
    @given(st.lists(_write(kind), min_size=1, max_size=6))
    def holds(writes: list[tuple[str, str, Object]]) -> None:
        def scenario(api: Api, namespace: str) -> Any:
            told = []
            for how, manager, body in writes:
                found = outcome(lambda: _done(api, namespace, kind, how, manager, body))  # noqa: B023 - called at once
                told.append(_without_status(found))
            if api.find(kind, namespace, "a") is not None:
                api.patch(kind, namespace, "a", {"metadata": {"finalizers": None}})
            return told

        twins.agree(scenario)

    holds()


def _without_status(found: Any) -> Any:
    """The object without its status, which controllers write meanwhile."""
    if not isinstance(found, dict):
        return found
    managed = [
        each for each in found["metadata"].get("managedFields", ()) if each["manager"] != "kube-controller-manager"
    ]
    made = {key: value for key, value in found.items() if key != "status"}
    return made | {"metadata": {**found["metadata"], "managedFields": managed}}
