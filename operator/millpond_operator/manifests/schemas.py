"""Pruning and defaults of custom resources by their schemas, as the API server does both."""

from __future__ import annotations

from typing import Any

__all__ = ("defaulted", "pruned", "whole")

Object = dict[str, Any]


def whole(value: Any) -> Any:
    """Return a mutable copy."""
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    return [whole(each) for each in value] if isinstance(value, list) else value


def pruned(schema: Object, value: Any, unknown: list[str], path: str) -> Any:
    """Return a value without the fields that its schema does not know.

    Args:
        schema: the schema.
        value: the value.
        unknown: gets the paths of those fields.
        path: of the value.
    """
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
            at = f"{path}.{key}" if path else str(key)
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


def defaulted(schema: Object, value: Any) -> Any:  # noqa: C901 - objects and lists
    """Return a value with its schema's defaults, copied if changed; nulls that are not allowed are removed."""
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
