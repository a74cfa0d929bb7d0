"""CEL validation rules in custom resources' schemas.

cel-python evaluates them; Kubernetes' extensions are added here as far as the project's rules use them. Results are
cached by the fields that a rule reads, since tests validate the same values again and again.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from typing import Any

import celpy
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.evaluation import CELEvalError
from msgspec.json import encode

from .quantities import canonical, value_of

__all__ = ("Rule",)

_MOST_REMEMBERED = 4096
_READ = re.compile(r"\b(?:self|oldSelf)\b((?:\.[A-Za-z_]\w*)*)(\s*\()?")
Fields = dict[str, "Fields"]
"""Fields, each with those below it that are read; with none, it is read as a whole."""


class _Quantity:
    """A quantity in CEL."""

    def __init__(self, text: Any) -> None:
        canonical(str(text))
        self.value = value_of(str(text))


def _is_quantity(text: Any) -> celtypes.BoolType:
    try:
        canonical(str(text))
    except ValueError:
        return celtypes.BoolType(source=False)
    return celtypes.BoolType(source=True)


def _compare(one: _Quantity, other: _Quantity) -> celtypes.IntType:
    return celtypes.IntType((one.value > other.value) - (one.value < other.value))


_FUNCTIONS: dict[str, Any] = {
    "isQuantity": _is_quantity,
    "quantity": _Quantity,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: celtypes.BoolType(one.value > other.value),
    "isLessThan": lambda one, other: celtypes.BoolType(one.value < other.value),
    "asApproximateFloat": lambda one: celtypes.DoubleType(float(one.value)),
    "join": lambda parts, by: celtypes.StringType(str(by).join(str(each) for each in parts)),
    "lowerAscii": lambda text: celtypes.StringType(str(text).lower()),
    "sum": lambda numbers: celtypes.IntType(sum(int(each) for each in numbers)),
}


# Made at import: it raises the interpreter's recursion limit, which must not change while Hypothesis runs a test.
_ENVIRONMENT = celpy.Environment()


def _given(value: Any, before: Any) -> dict[str, Any]:
    """Return the variables of an expression."""
    given = {"self": json_to_cel(value)}
    if before is not None:
        given["oldSelf"] = json_to_cel(before)
    return given


def _fields(text: str) -> Fields:
    """Return the fields that a rule reads."""
    made: Fields = {}
    for path, called in _READ.findall(text):
        names = path.split(".")[1:]
        below = made
        for name in names[:-1] if called else names:
            below = below.setdefault(name, {})
        below[""] = {}
    return made


def _part(value: Any, fields: Fields) -> Any:
    """Return the part of a value that is read."""
    if "" in fields or not isinstance(value, dict):
        return value
    return {name: _part(value[name], below) for name, below in fields.items() if name in value}


class Rule:
    """One rule.

    Attributes:
        field: the path below the value that it is about; empty for the value itself.
        transition: whether it compares with the old value.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        self._text = given["rule"]
        self._message: str = given.get("message") or f"failed rule: {self._text}"
        self._expression: str = given.get("messageExpression", "")
        self.reason: str = given.get("reason") or "FieldValueInvalid"
        self.field: str = given.get("fieldPath", "").lstrip(".")
        self.transition = "oldSelf" in self._text
        self._fields = _fields(self._text)
        self._known: OrderedDict[bytes, bool] = OrderedDict()

    @functools.cached_property
    def _program(self) -> celpy.Runner:
        environment = _ENVIRONMENT
        return environment.program(environment.compile(self._text), functions=_FUNCTIONS)

    def message(self, value: Any, before: Any) -> str:
        """Return the message for a value that violates it; `before` is None where there was none."""
        if not self._expression:
            return self._message
        environment = _ENVIRONMENT
        try:
            program = environment.program(environment.compile(self._expression), functions=_FUNCTIONS)
            return str(program.evaluate(_given(value, before)))
        except CELEvalError:
            return self._message

    def holds(self, value: Any, before: Any) -> bool:
        """Return whether a value satisfies it; `before` is None where there was none."""
        value, before = _part(value, self._fields), _part(before, self._fields)
        key = encode([value, before] if self.transition else value)
        found = self._known.get(key)
        if found is None:
            try:
                found = bool(self._program.evaluate(_given(value, before if self.transition else None)))
            except CELEvalError:
                found = False
            self._known[key] = found
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return found
