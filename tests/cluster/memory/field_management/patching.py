"""Merge patches and JSON patches."""

from __future__ import annotations

from typing import Any

from tests.cluster.memory.failures import ApiFailure, bad_request
from tests.cluster.memory.field_management.schemas import Schema
from tests.cluster.memory.validation.custom import whole

__all__ = ("json_patched", "merge_patched", "strategically_patched")


def merge_patched(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    made = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            made.pop(key, None)
        elif isinstance(each, dict):
            made[key] = merge_patched(made.get(key), each)
        else:
            made[key] = each
    return made


def json_patched(value: Any, operations: Any) -> Any:
    """RFC 6902.

    Raises:
        ApiFailure: an operation is not possible.
    """
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    made = whole(value)
    for each in operations:
        try:
            made = _operated(made, each)
        except (KeyError, IndexError, ValueError, TypeError):
            raise ApiFailure(
                422, "Invalid", f"the server rejected our request due to an error in our request: {each}"
            ) from None
    return made


def _operated(value: Any, operation: Any) -> Any:
    op, path = operation["op"], _pointer(operation["path"])
    match op:
        case "add":
            return _added(value, path, whole(operation["value"]))
        case "remove":
            return _taken(value, path)[0]
        case "replace":
            if not path:
                return operation["value"]
            parent = _at(value, path[:-1])
            if isinstance(parent, list):
                parent[int(path[-1])] = operation["value"]
            else:
                if path[-1] not in parent:
                    raise KeyError(path[-1])
                parent[path[-1]] = operation["value"]
            return value
        case "move":
            value, moved = _taken(value, _pointer(operation["from"]))
            return _added(value, path, moved)
        case "copy":
            return _added(value, path, whole(_at(value, _pointer(operation["from"]))))
        case "test":
            if _at(value, path) != operation.get("value"):
                raise ValueError(path)
            return value
    raise ValueError(op)


def _pointer(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _at(value: Any, path: list[str]) -> Any:
    for part in path:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


def _added(value: Any, path: list[str], new: Any) -> Any:
    if not path:
        return new
    parent = _at(value, path[:-1])
    if isinstance(parent, list):
        at = len(parent) if path[-1] == "-" else int(path[-1])
        if at > len(parent):
            raise IndexError(at)
        parent.insert(at, new)
    else:
        parent[path[-1]] = new
    return value


def _taken(value: Any, path: list[str]) -> tuple[Any, Any]:
    parent = _at(value, path[:-1])
    return value, parent.pop(int(path[-1]) if isinstance(parent, list) else path[-1])


def strategically_patched(schema: Schema, value: Any, patch: Any) -> Any:
    """Kubernetes' own patch, which merges lists by the keys in the type."""
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: each for key, each in patch.items() if key != "$patch"}
    if patch.get("$patch") == "delete":
        return {}
    made = dict(value) if isinstance(value, dict) else {}
    kept = patch.get("$retainKeys")
    if kept is not None:
        made = {key: each for key, each in made.items() if key in kept}
    for key, each in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            made[field] = [one for one in made.get(field) or () if one not in each]
        elif key.startswith("$"):
            continue
        elif each is None:
            made.pop(key, None)
        else:
            field_schema = schema.fields.get(key, schema.items)
            if isinstance(each, dict):
                made[key] = strategically_patched(field_schema, made.get(key), each)
            elif isinstance(each, list) and field_schema.patch is not None and made.get(key):
                made[key] = _patched_list(field_schema, made[key], each)
            elif isinstance(each, list):
                made[key] = [one for one in each if not (isinstance(one, dict) and one.get("$patch") == "delete")]
            else:
                made[key] = each
    return made


def _patched_list(schema: Schema, items: list[Any], patch: list[Any]) -> list[Any]:
    by = schema.patch
    if not by:
        return [*items, *(each for each in patch if each not in items)]
    if any(isinstance(each, dict) and each.get("$patch") == "replace" and len(each) == 1 for each in patch):
        return [each for each in patch if each != {"$patch": "replace"}]
    made = list(items)
    for each in patch:
        at = next((number for number, one in enumerate(made) if one.get(by) == each.get(by)), None)
        if each.get("$patch") == "delete":
            if at is not None:
                del made[at]
        elif at is None:
            made.append(each)
        else:
            made[at] = strategically_patched(schema.items, made[at], each)
    return made
