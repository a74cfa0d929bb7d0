"""What others added to an object that the operator applies, and the patch that takes it out again.

Applying puts back what was changed, but what another field manager added stays beside it: an environment variable, a volume, a
port. `metadata.managedFields` says who owns which field. A field that somebody else owns and that the manifest does not have is an
addition; a default of the API server, or what a webhook adds on the way, has no such owner and is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .names import FIELD_MANAGER, Object

__all__ = ("Additions", "additions", "strangers")

_OWNED = "f:spec"
"""Labels and annotations of others, and their data, harm nobody."""
_WHOLE = frozenset({"env", "volumes"})
"""Lists whose items have one source among several: an item to which one was added is put back as a whole."""
_MOST_NAMED = 3

_Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Additions:
    """What somebody added to an object."""

    fields: tuple[str, ...]
    """As people write them, such as ``spec.template.spec.containers[worker].env[DEBUG]``; sorted."""
    managers: tuple[str, ...]
    """The field managers that own them; sorted."""
    patch: tuple[Object, ...]
    """JSON patch operations that take them out."""

    def __str__(self) -> str:
        shown = ", ".join(self.fields[:_MOST_NAMED])
        more = len(self.fields) - _MOST_NAMED
        return f"{shown} and {more} more" if more > 0 else shown


@dataclass(frozen=True)
class _Found:
    path: _Path
    name: str
    value: Any = None
    """What to put in its place; None for nothing."""


def additions(manifest: Object, observed: Mapping[str, Any]) -> Additions | None:
    """Return what others added to the ``spec`` of an object, or None when nothing is there but what is wanted.

    Args:
        manifest: as it is applied.
        observed: the object, with the entries of ``metadata.managedFields`` that are not about applying this manifest.
    """
    found: dict[_Path, _Found] = {}
    managers: set[str] = set()
    wanted = {"spec": manifest.get("spec", {})}
    for entry in _entries(observed):
        fields = {_OWNED: entry["fieldsV1"][_OWNED]}
        own = entry.get("manager") == FIELD_MANAGER
        for each in _added(fields, observed, wanted, (), ""):
            # What was a default again after the operator took something out is the operator's own now, and fine.
            if own and not isinstance(each.path[-1], int):
                continue
            found[each.path] = each
            managers.add(entry.get("manager", ""))
    if not found:
        return None
    # Whatever lies behind in a list goes first, so that the positions of the others still hold.
    patch = tuple(_operation(found[path]) for path in sorted(found, reverse=True))
    return Additions(tuple(sorted({each.name for each in found.values()})), tuple(sorted(managers)), patch)


def strangers(observed: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the field managers, other than the operator, that own something in the pod template of an object; sorted."""
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


def _added(fields: Mapping[str, Any], there: Any, wanted: Any, path: _Path, name: str) -> Iterator[_Found]:
    """Walk what a manager owns, beside the object and the manifest."""
    for element, below in fields.items():
        if element == ".":
            continue
        step = _step(element, there)
        if step is None:  # it is gone, or part of a whole that has one owner
            continue
        at = (*path, step)
        label = _label(element)
        inner_name = f"{name}{label}" if label.startswith("[") else f"{name}.{label}".lstrip(".")
        inner = _wanted(element, wanted)
        if inner is None:
            yield _Found(at, inner_name)
            continue
        nested = _added(below, there[step], inner, at, inner_name)
        if isinstance(step, int) and path and path[-1] in _WHOLE:
            nested = (_Found(at, each.name, inner) for each in nested)
        yield from nested


def _step(element: str, there: Any) -> str | int | None:
    """The key or the position that an element of ``fieldsV1`` stands for; None when the object has none such."""
    kind, _, rest = element.partition(":")
    if kind == "f" and isinstance(there, Mapping):
        return rest if rest in there else None
    if kind in {"k", "v"} and isinstance(there, Sequence) and not isinstance(there, str):
        return next((index for index, item in enumerate(there) if _is(kind, rest, item)), None)
    return None


def _wanted(element: str, wanted: Any) -> Any:
    """What the manifest has for an element of ``fieldsV1``; None when it has nothing."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return wanted.get(rest) if isinstance(wanted, Mapping) else None
    items = wanted if isinstance(wanted, Sequence) and not isinstance(wanted, str) else ()
    return next((item for item in items if _is(kind, rest, item)), None)


def _is(kind: str, rest: str, item: Any) -> bool:
    """Whether an item of a list is the one that an element of ``fieldsV1`` names by its keys or its value."""
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


def _operation(found: _Found) -> Object:
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in found.path)
    if found.value is None:
        return {"op": "remove", "path": pointer}
    return {"op": "replace", "path": pointer, "value": found.value}
