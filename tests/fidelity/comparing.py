"""The same tests against two API servers, in memory and real: clients of both, and the parts of objects to compare."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.api import Api, ApiFailure, Object
from tests.cluster.apiserver import SharedApiServer
from tests.cluster.background import Background
from tests.cluster.installing import install_crds
from tests.cluster.memory import MemoryApiServer

__all__ = ("Twins", "namespace_on", "outcome", "seen", "twin_servers")

_CRDS = Path(__file__).parents[2] / "crds"
#: Of each write, each object or each server.
_MOMENTS = frozenset(
    {
        "batch.kubernetes.io/controller-uid",
        "controller-uid",
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "resourceVersion",
        "time",
        "uid",
    }
)


class Twins(NamedTuple):
    """Clients of both servers, with all rights."""

    memory: Api
    real: Api

    def agree(self, scenario: Callable[[Api, str], Any]) -> Any:
        """Play a scenario on both servers, in a namespace each; return the result, which has to be the same.

        Args:
            scenario: gets a client and a namespace, and returns what it saw.
        """
        found = []
        for api in self:
            with namespace_on(api) as namespace:
                found.append(seen(scenario(api, namespace), namespace=namespace))
        assert found[0] == found[1], "\n".join(_differences(*found))
        return found[0]


@contextlib.contextmanager
def twin_servers(background: Background, real: SharedApiServer) -> Iterator[Twins]:
    """Both servers, with the project's custom resources."""
    with (
        MemoryApiServer(background) as server,
        Api(background, server.admin) as memory,
        Api(background, real.admin) as other,
    ):
        for api in (memory, other):
            install_crds(api, _CRDS)
        yield Twins(memory, other)


@contextlib.contextmanager
def namespace_on(api: Api) -> Iterator[str]:
    """A namespace of one's own."""
    name = f"fidelity-{uuid.uuid4().hex[:8]}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    api.delete("Namespace", None, name)


def outcome(work: Callable[[], Object]) -> Any:
    """The result of a request: the object, or the status and the reason of the error."""
    try:
        return work()
    except ApiFailure as failure:
        return failure.status, failure.reason


def seen(value: Any, **words: str) -> Any:
    """The observed value without parts that must differ; `words` are replaced by their names."""
    if isinstance(value, dict):
        made = {key: seen(each, **words) for key, each in value.items() if key not in _MOMENTS}
        if "managedFields" in made:
            made["managedFields"] = sorted(made["managedFields"], key=lambda each: json.dumps(each, sort_keys=True))
        return made
    if isinstance(value, (list, tuple)):
        return [seen(each, **words) for each in value]
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(word, f"<{name}>")
    return value


def _differences(memory: Any, real: Any, path: str = "") -> list[str]:
    """The differences between both values, line by line."""
    if isinstance(memory, dict) and isinstance(real, dict):
        keys = sorted({*memory, *real})
        pairs = [(f"{path}.{key}", memory.get(key, "nothing"), real.get(key, "nothing")) for key in keys]
    elif isinstance(memory, list) and isinstance(real, list) and len(memory) == len(real):
        pairs = [(f"{path}[{number}]", *pair) for number, pair in enumerate(zip(memory, real, strict=True))]
    else:
        return [] if memory == real else [f"{path}: in memory {memory}, really {real}"]
    return [line for at, one, other in pairs for line in _differences(one, other, at)]
