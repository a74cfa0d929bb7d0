"""Objects that the rules are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.api import ApiFailure, Object

__all__ = ("config_map", "names", "owner_of", "refusal", "stateful_set")


def config_map(space: str, name: str = "a", **more: Any) -> Object:
    metadata = {"name": name, "namespace": space, **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **more}


def stateful_set(space: str, replicas: int = 2, **spec: Any) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": space},
        "spec": {
            "replicas": replicas,
            "serviceName": "s",
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "selector": {"matchLabels": {"s": "t"}},
            "template": {
                "metadata": {"labels": {"s": "t"}},
                "spec": {"containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 10},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "state"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                }
            ],
            **spec,
        },
    }


def refusal(work: Callable[[], object]) -> ApiFailure:
    with pytest.raises(ApiFailure) as caught:
        work()
    return caught.value


def names(items: list[Object]) -> list[str]:
    return [each["metadata"]["name"] for each in items]


def owner_of(item: Object, **more: bool) -> Object:
    return {
        "apiVersion": item["apiVersion"],
        "kind": item["kind"],
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        **more,
    }
