"""Each mistake in an application becomes one condition with a reason and a cure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.cluster import Cluster, Object
from e2e.commands import CommandFailed
from e2e.images import Images
from e2e.installation import Installation
from e2e.kafka import Kafka
from e2e.streamapp import StreamApp, condition

_KNOWN_WITHIN_S = 150.0
_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no-such-attribute": ({"topology": "verifier:topologie"}, "topologie"),
    "no-such-secret": ({"kafka": {"credentialsSecret": "nowhere"}}, "nowhere"),
    "no-such-broker": ({"kafka": {"bootstrapServers": "nowhere.invalid:9092"}}, "nowhere.invalid"),
    "no-such-topic": ({"env": [{"name": "VERIFIER_ORDERS", "value": "no-orders"}]}, "no-orders"),
    "no-such-image": ({"image": "millpond/verifier:e2e-v9"}, "millpond/verifier:e2e-v9"),
}


@pytest.fixture(scope="module")
def wrong(cluster: Cluster, kafka: Kafka, images: Images, operator: Installation) -> Iterator[dict[str, StreamApp]]:
    """Five applications at once, each with one mistake."""
    apps = {}
    for name, (fields, _) in _WRONG.items():
        spec: dict[str, Any] = {
            "image": images.verifier("v1"),
            "imagePullPolicy": "IfNotPresent",
            "topology": "verifier:topology",
            "state": {"ephemeral": True},
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
        }
        spec |= fields
        spec["kafka"] = {"bootstrapServers": kafka.inside, **fields.get("kafka", {})}
        apps[name] = StreamApp(cluster, kafka.namespace, name)
        apps[name].apply(spec)
    yield apps
    for app in apps.values():
        app.kubectl("delete", "sapp", app.name, "--wait=true")


@pytest.mark.parametrize("name", _WRONG)
def test_each_mistake_is_reported_in_a_condition(
    wrong: dict[str, StreamApp], name: str, say: Callable[[str], None]
) -> None:
    """The application is Degraded, and the message names what has to be changed."""
    _, named = _WRONG[name]

    def said(found: Object) -> bool:
        degraded = condition(found, "Degraded")
        return degraded.get("status") == "True" and named in degraded.get("message", "")

    app = wrong[name].until(said, f"the condition names {named}", _KNOWN_WITHIN_S)
    degraded = condition(app, "Degraded")
    say(f"{degraded['reason']}: {degraded['message']}")


def test_an_invalid_manifest_is_refused_with_a_sentence(cluster: Cluster, kafka: Kafka, operator: Installation) -> None:
    """The message of the API server has the cure."""
    app = StreamApp(cluster, kafka.namespace, "invalid")
    with pytest.raises(CommandFailed, match="module:attribute"):
        app.apply({"image": "shop:1", "topology": "shop", "kafka": {"bootstrapServers": kafka.inside}})
    assert not app.exists()
