"""The rules of the project's CRDs reject the same objects, in the same words, in memory and on a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.crds.rules import OBJECT, TRANSITIONS, changed
from tests.fidelity.comparing import Twins, twin_servers


@pytest.fixture(scope="module")
def twins(background: Background, api_server: SharedApiServer) -> Iterator[Twins]:
    """Both servers."""
    with twin_servers(background, api_server) as made:
        yield made


def _stream_app(namespace: str) -> Object:
    spec = {"image": "delays:1", "topology": "app:delays", "kafka": {"bootstrapServers": "kafka:9092"}}
    metadata = {"name": "delays", "namespace": namespace}
    return {"apiVersion": "millpond.dev/v1alpha1", "kind": "StreamApp", "metadata": metadata, "spec": spec}


def _refusal(work: Callable[[], object]) -> str:
    """The message of a rejection; "" without one."""
    try:
        work()
    except ApiFailure as failure:
        return failure.message
    return ""


def test_rules_refuse_mistakes_in_the_same_words(twins: Twins) -> None:
    """Both servers reject each mistake with the same message, and accept what is right."""

    def scenario(api: Api, namespace: str) -> list[tuple[str, str]]:
        app = _stream_app(namespace)
        return [
            (
                _refusal(lambda case=case: api.apply(changed(app, case.wrong), dry_run=True)),  # type: ignore[misc]
                _refusal(lambda case=case: api.apply(changed(app, case.right), dry_run=True)),  # type: ignore[misc]
            )
            for case in OBJECT
        ]

    found = twins.agree(scenario)
    assert all(wrong and not right for wrong, right in found)


def test_rules_refuse_changes_in_the_same_words(twins: Twins) -> None:
    """Both servers reject forbidden changes with the same message."""

    def scenario(api: Api, namespace: str) -> list[str]:
        found = []
        for number, change in enumerate(TRANSITIONS):
            app = changed(_stream_app(namespace), {**change.before, ".metadata/name": f"app-{number}"})
            there = api.create(app)
            found.append(_refusal(lambda there=there, change=change: api.replace(changed(there, change.wrong))))  # type: ignore[misc]
        return found

    assert all(twins.agree(scenario))
