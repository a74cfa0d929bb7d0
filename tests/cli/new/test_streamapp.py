"""The StreamApp of a new project is one that the API server accepts."""

from __future__ import annotations

from pathlib import Path

import yaml

from millpond_operator.resources import parse
from tests.cli.conftest import Millpond
from tests.cluster.api import Api


def test_the_streamapp_is_accepted(millpond: Millpond, api: Api, crds: None, namespace: str) -> None:
    """Its fields are those of the definition, none is dropped, and the operator reads them."""
    millpond("new", "shop")
    written = yaml.safe_load(Path("shop/streamapp.yaml").read_text())
    written["metadata"]["namespace"] = namespace
    created = api.create(written)
    for field, value in written["spec"].items():
        assert created["spec"][field] == value or created["spec"][field].items() >= value.items(), field
    app = parse(created)
    assert (app.name, app.application_id, app.spec.replicas) == ("shop", "shop", 2)
