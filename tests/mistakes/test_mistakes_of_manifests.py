"""Mistakes in a StreamApp, on the shared API server: what `kubectl apply` is answered."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.cluster.api import Api, ApiFailure, path_of
from tests.mistakes.table import MANIFEST, MISTAKES, Mistake, Moment

OF_MANIFESTS = [mistake for mistake in MISTAKES if mistake.moment is Moment.APPLY]


def _changed(given: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with other values; null removes one."""
    found = {**given}
    for name, value in changes.items():
        found[name] = _changed(found.get(name, {}), value) if isinstance(value, dict) else value
    return {name: value for name, value in found.items() if value is not None}


def _create(api: Api, manifest: str) -> None:
    """Create a StreamApp in a dry run. `kubectl apply` asks for strict fields, too."""
    given = _changed(yaml.safe_load(MANIFEST), yaml.safe_load(manifest) or {})
    given["metadata"]["namespace"] = "default"
    request = api.inside.request(
        "POST", path_of("StreamApp", "default"), given, fieldValidation="Strict", dryRun="All"
    )  # fmt: skip
    api.background.call(request)


def test_the_manifest_without_a_mistake_is_accepted(api: Api, crds: None) -> None:
    """So each mistake is the one that is told."""
    _create(api, "{}")


@pytest.mark.parametrize("mistake", OF_MANIFESTS, ids=lambda each: each.title.replace(" ", "-"))
def test_a_mistake_in_a_streamapp_is_told_when_it_is_applied(mistake: Mistake, api: Api, crds: None) -> None:
    """With the words of the table, and nothing is created."""
    with pytest.raises(ApiFailure) as failure:
        _create(api, mistake.manifest)
    assert mistake.says in failure.value.message
