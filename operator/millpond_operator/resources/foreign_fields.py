"""Fields that others added to an object that the operator applies, and the patch that removes them.

Applying restores changed fields, but a field that another manager added stays: an environment variable, a volume, a
port. `metadata.managedFields` has the owner of each field. A field with another owner that is not in the manifest is an
addition. Defaults of the API server, and what a webhook adds, have no such owner and are no additions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .names import FIELD_MANAGER, Object

__all__ = ("Additions", "additions", "foreign_managers")

_OWNED = "f:spec"
"""The part that is checked. Labels, annotations and data of others do no harm."""
_WHOLE = frozenset({"env", "volumes"})
"""Lists whose items have exactly one of several sources: a changed item is replaced as a whole."""
_MAX_NAMED = 3

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Additions:
    """The fields that others added to an object."""

    fields: tuple[str, ...]
    """Paths, such as ``spec.template.spec.containers[worker].env[DEBUG]``; sorted."""
    managers: tuple[str, ...]
    """The field managers that own them; sorted."""
    patch: tuple[Object, ...]
    """JSON patch operations that remove them."""

    def __str__(self) -> str:
        shown = ", ".join(self.fields[:_MAX_NAMED])
        more = len(self.fields) - _MAX_NAMED
        return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True)
class _Addition:
    path: _Path
    name: str
    value: Any = None
    """The value to restore; None to remove the field."""


def additions(manifest: Object, observed: Mapping[str, Any]) -> Additions | None:
    """Return the fields that others added to the ``spec`` of an object; None when there are none.

    Args:
        manifest: as it is applied.
        observed: the object, with the entries of ``metadata.managedFields`` that are not from applying this manifest.
    """
    found: dict[_Path, _Addition] = {}
    managers: set[str] = set()
    wanted = {"spec": manifest.get("spec", {})}
    for entry in _entries(observed):
        fields = {_OWNED: entry["fieldsV1"][_OWNED]}
        own = entry.get("manager") == FIELD_MANAGER
        for each in _added(fields, observed, wanted, (), ""):
            # A default that came back after the operator's patch belongs to the operator, and is no addition.
            if own and not isinstance(each.path[-1], int):
                continue
            found[each.path] = each
            managers.add(entry.get("manager", ""))
    if not found:
        return None
    # Later items of a list first, so that the indices of earlier ones stay valid.
    patch = tuple(_operation(found[path]) for path in sorted(found, reverse=True))
    return Additions(tuple(sorted({each.name for each in found.values()})), tuple(sorted(managers)), patch)


def foreign_managers(observed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the other field managers that own something in the pod template of an object; sorted."""
    return tuple(
        sorted(
            {
                str(entry.get("manager", ""))
                for entry in _entries(observed)
                if entry.get("manager") != FIELD_MANAGER and "f:template" in entry["fieldsV1"][_OWNED]
            }
        )
    )


def _entries(observed: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    entries = observed.get("metadata", {}).get("managedFields") or ()
    return [
        each
        for each in entries
        if not each.get("subresource")
        and (each.get("manager"), each.get("operation")) != (FIELD_MANAGER, "Apply")
        and _OWNED in (each.get("fieldsV1") or {})
    ]


def _added(fields: Mapping[str, Any], there: Any, wanted: Any, path: _Path, name: str) -> Iterator[_Addition]:
    """Yield the fields that a manager owns in the object and that are not in the manifest."""
    for element, below in fields.items():
        if element == ".":
            continue
        step = _step(element, there)
        if step is None:  # removed, or part of a value with one owner
            continue
        at = (*path, step)
        label = _label(element)
        inner_name = f"{name}{label}" if label.startswith("[") else f"{name}.{label}".lstrip(".")
        inner = _wanted(element, wanted)
        if inner is None:
            yield _Addition(at, inner_name)
            continue
        nested = _added(below, there[step], inner, at, inner_name)
        if isinstance(step, int) and path and path[-1] in _WHOLE:
            nested = (_Addition(at, each.name, inner) for each in nested)
        yield from nested


def _step(element: str, there: Any) -> str | int | None:
    """Return the key or index that an element of ``fieldsV1`` stands for; None when the object does not have it."""
    kind, _, rest = element.partition(":")
    if kind == "f" and isinstance(there, Mapping):
        return rest if rest in there else None
    if kind in {"k", "v"} and isinstance(there, Sequence) and not isinstance(there, str):
        return next((index for index, item in enumerate(there) if _is(kind, rest, item)), None)
    return None


def _wanted(element: str, wanted: Any) -> Any:
    """Return the value in the manifest for an element of ``fieldsV1``; None when it has none."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return wanted.get(rest) if isinstance(wanted, Mapping) else None
    items = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else ()
    return next((item for item in items if _is(kind, rest, item)), None)


def _is(kind: str, rest: str, item: Any) -> bool:
    """Return whether an element of ``fieldsV1`` identifies this item of a list, by its keys or its value."""
    given = json.loads(rest)
    if kind == "v":
        return bool(item == given)
    return isinstance(item, Mapping) and all(item.get(key, value) == value for key, value in given.items())


def _label(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return rest
    given = json.loads(rest)
    return f"[{next(iter(given.values())) if isinstance(given, Mapping) else given}]"


def _operation(found: _Addition) -> Object:
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in found.path)
    if found.value is None:
        return {"op": "remove", "path": pointer}
    return {"op": "replace", "path": pointer, "value": found.value}
