"""The definitions of the custom resources, which this package has in `crds`."""

from __future__ import annotations

import functools
import importlib.resources
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ("Definition", "definitions")


@dataclass(frozen=True)
class Definition:
    """One kind of custom resource.

    Attributes:
        api_version: group and version, as in a manifest.
        kind: of the objects.
        schema: the OpenAPI schema with validation rules.
    """

    api_version: str
    kind: str
    schema: dict[str, Any]


@functools.cache
def definitions() -> dict[str, Definition]:
    """Return the definitions by kind."""
    found = {}
    for file in importlib.resources.files("millpond_operator").joinpath("crds").iterdir():
        if not file.name.endswith(".yaml"):
            continue
        spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for version in spec["versions"]:
            kind = spec["names"]["kind"]
            schema = version["schema"]["openAPIV3Schema"]
            found[kind] = Definition(f"{spec['group']}/{version['name']}", kind, schema)
    return found
