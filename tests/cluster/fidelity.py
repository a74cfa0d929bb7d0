"""The same tests against two API servers: the one in memory and the real one. What is seen is freed of what must differ."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

from tests.cluster.api import Api, ApiFailure, Object

__all__ = ("MOMENTS", "namespace_on", "outcome", "seen")

#: Of each write, each object or each server.
MOMENTS = frozenset(
    {
        "creationTimestamp",
        "deletionTimestamp",
        "lastTransitionTime",
        "resourceVersion",
        "time",
        "uid",
    }
)


def seen(value: Any, **words: str) -> Any:
    """An object without what must differ; `words` are replaced by their names."""
    if isinstance(value, dict):
        made = {key: seen(each, **words) for key, each in value.items() if key not in MOMENTS}
        if "managedFields" in made:
            made["managedFields"] = sorted(made["managedFields"], key=lambda each: json.dumps(each, sort_keys=True))
        return {_told(key, words): each for key, each in made.items()}
    if isinstance(value, list):
        return [seen(each, **words) for each in value]
    return _told(value, words)


def _told(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, word in words.items():
            value = value.replace(word, f"<{name}>")
    return value


def outcome(api: Api, method: str, path: str, body: Any = None, **options: str) -> tuple[int, Any]:
    """What comes of a request: 200 and the object, or the status and the reason."""
    try:
        return 200, api.request(method, path, body, **options)
    except ApiFailure as failure:
        return failure.status, failure.reason


@contextlib.contextmanager
def namespace_on(api: Api) -> Iterator[str]:
    """A namespace of one's own."""
    name = f"fidelity-{uuid.uuid4().hex[:8]}"
    made: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    api.create(made)
    yield name
    api.delete("Namespace", None, name)
