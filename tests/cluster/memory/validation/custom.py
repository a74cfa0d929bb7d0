"""Custom resources: pruning, defaults and validation by their schemas."""

from __future__ import annotations

from typing import Any

from tests.cluster.memory.field_management.schemas import Schema, built_in, normalised, structural
from tests.cluster.memory.kinds import Kind
from tests.cluster.memory.validation.validating import Validator

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


def whole(value: Any) -> Any:
    """A mutable copy."""
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


def pruned(schema: Object, value: Any, unknown: list[str], path: str) -> Any:
    """A value without fields that its schema does not know."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        keep = schema.get("x-kubernetes-preserve-unknown-fields")
        free = not properties and not isinstance(additional, dict)
        if free and (keep or additional or schema.get("type") != "object"):
            return value
        made: Object = {}
        for key, each in value.items():
            below = properties.get(key)
            if below is None and isinstance(additional, dict):
                below = additional
            at = f"{path}.{key}" if path else key
            if below is not None:
                made[key] = pruned(below, each, unknown, at)
            elif keep:
                made[key] = each
            else:
                unknown.append(at)
        return made
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        items = schema["items"]
        return [pruned(items, each, unknown, f"{path}[{number}]") for number, each in enumerate(value)]
    return value


def defaulted(schema: Object, value: Any) -> Any:
    """A value with its schema's defaults, copied if changed; invalid nulls are removed."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        made = dict(value)
        for key, below in properties.items():
            if key in made and made[key] is None and not below.get("nullable"):
                if "default" not in below:
                    continue
                del made[key]
            if key not in made and "default" in below:
                made[key] = whole(below["default"])
            if key in made:
                made[key] = defaulted(below, made[key])
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for key, each in value.items():
                if key not in properties:
                    made[key] = defaulted(additional, each)
        return made
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [defaulted(schema["items"], each) for each in value]
    return value


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
