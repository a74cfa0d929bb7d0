"""Custom resources: pruning, defaults and validation by their schemas."""

from __future__ import annotations

from typing import Any

from millpond_operator.manifests.schemas import defaulted, pruned, whole
from millpond_operator.manifests.validating import Validator
from tests.cluster.memory.field_management.schemas import Schema, built_in, normalised, structural
from tests.cluster.memory.kinds import Kind

__all__ = ("CustomType", "kind_of", "whole")

Object = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TOP = ("apiVersion", "kind", "metadata")


class CustomType:
    """The schema of one version of a custom resource.

    Attributes:
        given: as in the definition.
        typed: the type for merging.
        scale: the paths of the scale subresource, if there is one.
        validator: validates objects.
    """

    def __init__(self, given: Object, scale: Object | None) -> None:
        self.given = given
        self.typed: Schema = structural({"type": "object", **given}, root=True)
        self.scale = scale
        self.validator = Validator(given)

    def decoded(self, item: Object, unknown: list[str]) -> Object:
        """An object without unknown fields, and with defaults."""
        made = {key: value for key, value in item.items() if key in _TOP}
        made["metadata"] = normalised(built_in(_META), item.get("metadata") or {}, unknown, "metadata")
        rest = {key: value for key, value in item.items() if key not in _TOP}
        schema = {
            **self.given,
            "properties": {k: v for k, v in self.given.get("properties", {}).items() if k not in _TOP},
        }
        return {**made, **defaulted(schema, pruned(schema, rest, unknown, ""))}


def kind_of(definition: Object) -> list[Kind]:
    """The kind that a custom resource definition defines."""
    spec = definition["spec"]
    names = spec["names"]
    found = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        given = (version.get("schema") or {}).get("openAPIV3Schema") or {"type": "object"}
        found.append(
            Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                namespaced=spec["scope"] == "Namespaced",
                subresources=tuple(each for each in ("status", "scale") if each in subresources),
                short=tuple(names.get("shortNames") or ()),
                singular=names.get("singular", ""),
                list_kind=names.get("listKind", ""),
                categories=tuple(names.get("categories") or ()),
                schema=CustomType(given, subresources.get("scale")),
            )
        )
    return found
