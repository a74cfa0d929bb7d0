"""Validation of custom resources by their schemas."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rules import Rule

__all__ = ("Cause", "Validator")

Object = dict[str, Any]
Cause = tuple[str, str, str]
"""Reason, path of the field, and sentence."""
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_NONE: Any = object()


class Validator:
    """A schema, or a part of one.

    Args:
        given: the OpenAPI schema.
        rules: whether its validation rules are evaluated, which needs cel-python.
    """

    def __init__(self, given: Object, *, rules: bool = True) -> None:
        self._given = given
        self._type: str = given.get("type", "")
        self._properties = {key: Validator(each, rules=rules) for key, each in (given.get("properties") or {}).items()}
        additional = given.get("additionalProperties")
        self._additional = Validator(additional, rules=rules) if isinstance(additional, dict) else None
        self._items = Validator(given["items"], rules=rules) if isinstance(given.get("items"), dict) else None
        self._given_rules: list[Object] = given.get("x-kubernetes-validations") or []
        self._rules = _rules(self._given_rules) if rules else []
        self._pattern = re.compile(given["pattern"]) if "pattern" in given else None
        self._keys: list[str] = list(given.get("x-kubernetes-list-map-keys") or ())

    def rules_in(self, value: Any) -> int:
        """Return how many rules, other than those about changes, apply to a value and to what is below."""
        below = [self._properties.get(key, self._additional) for key in value] if isinstance(value, dict) else []
        values = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        validators = [self._items] * len(values) if isinstance(value, list) else below
        return sum("oldSelf" not in each["rule"] for each in self._given_rules) + sum(
            validator.rules_in(each)
            for validator, each in zip(validators, values, strict=True)
            if validator is not None
        )

    def causes(self, item: Object, before: Object | None) -> list[Cause]:
        """Return the violations in an object; old violations may stay."""
        found: list[Cause] = []
        self.check(item, "", found, before if before is not None else _NONE)
        if not found:
            self.check_rules(item, "", found, before if before is not None else _NONE)
        return found

    def check(  # noqa: C901 - one line per rule of OpenAPI
        self, value: Any, path: str, found: list[Cause], before: Any
    ) -> None:
        """Add what is wrong with types and bounds to `found`, here and below; see `causes`."""
        if value == before and type(value) is type(before):
            return
        given = self._given
        if value is None and given.get("nullable"):
            return
        if given.get("x-kubernetes-int-or-string"):
            if not isinstance(value, (int, str)) or isinstance(value, bool):
                found.append(_wrong_type(value, path, "integer,string"))
                return
        elif self._type and not _is(value, self._type):
            found.append(_wrong_type(value, path, self._type))
            return
        if "enum" in given and value not in given["enum"]:
            supported = ", ".join(f'"{each}"' for each in given["enum"])
            found.append(
                ("FieldValueNotSupported", path, f"Unsupported value: {_shown(value)}: supported values: {supported}")
            )
        if isinstance(value, str):
            self._check_text(value, path, found)
        elif isinstance(value, dict):
            self._check_object(value, path, found, before)
        elif isinstance(value, list):
            self._check_list(value, path, found, before)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            self._check_number(value, path, found)

    def _check_text(self, value: str, path: str, found: list[Cause]) -> None:
        given = self._given
        if len(value) > given.get("maxLength", len(value)):
            told = f"Too long: may not be more than {given['maxLength']} bytes"
            found.append(("FieldValueTooLong", path, told))
        if len(value) < given.get("minLength", 0):
            told = f"{path} in body should be at least {given['minLength']} chars long"
            found.append(("FieldValueInvalid", path, f"Invalid value: {_shown(value)}: {told}"))
        if self._pattern is not None and not self._pattern.search(value):
            told = f"{path} in body should match '{given['pattern']}'"
            found.append(("FieldValueInvalid", path, f"Invalid value: {_shown(value)}: {told}"))
        if given.get("format") == "date-time":
            try:
                if "T" not in value.upper() or datetime.fromisoformat(value).tzinfo is None:
                    raise ValueError(value)
            except ValueError:
                found.append(_wrong_type(value, path, "date-time"))

    def _check_number(self, value: float, path: str, found: list[Cause]) -> None:
        given = self._given
        low, high = _RANGES.get(given.get("format", ""), (value, value))
        if not low <= value <= high:
            told = f"{path} in body must be of type {given['format']}: {_shown(value)}"
            found.append(("FieldValueTypeInvalid", path, f"Invalid value: {_shown(value)}: {told}"))
        if value < given.get("minimum", value):
            told = f"{path} in body should be greater than or equal to {given['minimum']}"
            found.append(("FieldValueInvalid", path, f"Invalid value: {value}: {told}"))
        if value > given.get("maximum", value):
            told = f"{path} in body should be less than or equal to {given['maximum']}"
            found.append(("FieldValueInvalid", path, f"Invalid value: {value}: {told}"))

    def _check_object(self, value: Object, path: str, found: list[Cause], before: Any) -> None:
        given = self._given
        missing = (name for name in given.get("required") or () if name not in value)
        found.extend(("FieldValueRequired", _below(path, name), "Required value") for name in missing)
        if len(value) > given.get("maxProperties", len(value)):
            told = f"Too many: {len(value)}: must have at most {given['maxProperties']} items"
            found.append(("FieldValueTooMany", path, told))
        old = before if isinstance(before, dict) else {}
        for key, each in value.items():
            below = self._properties.get(key, self._additional)
            if below is not None and (path or key not in {"metadata", "apiVersion", "kind"}):
                below.check(each, _below(path, key), found, old.get(key, _NONE))

    def _check_list(self, value: list[Any], path: str, found: list[Cause], before: Any) -> None:
        given = self._given
        if len(value) > given.get("maxItems", len(value)):
            told = f"Too many: {len(value)}: must have at most {given['maxItems']} items"
            found.append(("FieldValueTooMany", path, told))
        if len(value) < given.get("minItems", 0):
            told = f"{path} in body should have at least {given['minItems']} items"
            found.append(("FieldValueInvalid", path, f"Invalid value: {len(value)}: {told}"))
        seen: list[Any] = []
        old = self._old_items(before)
        for number, each in enumerate(value):
            at = f"{path}[{number}]"
            key = self._key(each)
            if key is not None:
                if key in seen:
                    told = json.dumps(dict(zip(self._keys, key, strict=True))) if self._keys else _shown(each)
                    found.append(("FieldValueDuplicate", at, f"Duplicate value: {told}"))
                seen.append(key)
            if self._items is not None:
                self._items.check(each, at, found, old(key, number))

    def _key(self, item: Any) -> Any:
        kind = self._given.get("x-kubernetes-list-type")
        if kind == "set":
            return item
        if kind == "map" and isinstance(item, dict):
            return tuple(item.get(key) for key in self._keys)
        return None

    def _old_items(self, before: Any) -> Any:
        """Return a function that finds the old value of an item; items of atomic lists have none."""
        if not isinstance(before, list) or self._given.get("x-kubernetes-list-type") != "map":
            return lambda key, number: _NONE
        keyed = {self._key(each): each for each in before}
        return lambda key, number: keyed.get(key, _NONE)

    def check_rules(  # noqa: C901 - objects and lists
        self, value: Any, path: str, found: list[Cause], before: Any
    ) -> None:
        """Add the rules that do not hold to `found`, here and below; see `causes`."""
        if value is None:
            return
        same = before is not _NONE and value == before
        for rule in self._rules:
            if rule.transition and before is _NONE:
                continue
            if same and not rule.transition:
                continue
            told = _head(value) if not path else value
            was = None if before is _NONE else _head(before) if not path else before
            if not rule.holds(told, was):
                at = _below(path, rule.field) if rule.field else path
                found.append((rule.reason, at or "<nil>", _broken(rule, value, rule.message(told, was))))
        if isinstance(value, dict):
            old = before if isinstance(before, dict) else {}
            for key, each in value.items():
                below = self._properties.get(key, self._additional)
                if below is not None:
                    below.check_rules(each, _below(path, key), found, old.get(key, _NONE))
        elif isinstance(value, list) and self._items is not None:
            find = self._old_items(before)
            for number, each in enumerate(value):
                self._items.check_rules(each, f"{path}[{number}]", found, find(self._key(each), number))


def _rules(given: list[Object]) -> list[Rule]:
    if not given:
        return []
    from .rules import Rule

    return [Rule(each) for each in given]


def _broken(rule: Rule, value: Any, message: str) -> str:
    """Return the message for a value that violates a rule: it has the name of its type."""
    if rule.reason == "FieldValueForbidden":
        return f"Forbidden: {message}"
    return f'Invalid value: "{_named(value)}": {message}'


def _head(item: Object) -> Object:
    """Return an object with the metadata that rules of a whole object may read."""
    metadata = item.get("metadata", {})
    return {**item, "metadata": {key: metadata[key] for key in ("name", "generateName") if key in metadata}}


def _is(value: Any, type: str) -> bool:
    if type in {"integer", "number"}:
        if isinstance(value, float) and type == "integer":
            return value.is_integer()
        return isinstance(value, _TYPES[type]) and not isinstance(value, bool)
    return isinstance(value, _TYPES[type])


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    return json.dumps(value)


def _named(value: Any) -> str:
    """Return the name of the type of a value."""
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(value.__class__, "null")


def _wrong_type(value: Any, path: str, type: str) -> Cause:
    told = _named(value)
    return "FieldValueTypeInvalid", path, f'Invalid value: "{told}": {path} in body must be of type {type}: "{told}"'
