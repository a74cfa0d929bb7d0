"""Finds aggregators that change the aggregate in place and return nothing: each call would delete the aggregate."""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any

from millpond.checks import check_function, named
from millpond.errors import TopologyError

__all__ = ("check_aggregator",)

Aggregator = Callable[[Any, Any, Any], Any]

_CHANGED_IN_PLACE = (dict, list, set, bytearray, deque)
_METHODS = frozenset(
    method
    for each in _CHANGED_IN_PLACE
    for method in ("add", "append", "appendleft", "clear", "extend", "insert", "remove", "reverse", "sort", "update")
    if hasattr(each, method)
)
_EFFECTS = ("CALL", "STORE_SUBSCR", "STORE_ATTR", "DELETE_SUBSCR")


def check_aggregator(what: str, function: Aggregator) -> Aggregator:
    """Check an aggregator, and return it.

    A lambda that calls a method such as `update()` is returned in a function that looks at its results; others cost
    nothing per record.

    Args:
        what: the operator that the function is given to, such as `aggregate()`.
        function: f(key, value, aggregate) -> the new aggregate.

    Raises:
        TopologyError: it cannot be called so, or is a `def` that never returns an aggregate.
    """
    check_function(what, function, "key", "value", "aggregate")
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return function
    if code.co_name == "<lambda>":
        return _watched(what, function) if _METHODS.intersection(code.co_names) else function
    if _returns_nothing(code):
        raise TopologyError(
            f"{what} is given {named(function)}, which never returns the new aggregate, so each record would delete "
            "it; end the function with return and the aggregate."
        )
    return function


def _watched(what: str, function: Aggregator) -> Aggregator:
    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        new = function(key, value, aggregate)
        if new is None and isinstance(aggregate, _CHANGED_IN_PLACE):
            raise TopologyError(
                f"{what} calls {named(function)}, which changes the {type(aggregate).__name__} and returns None, and "
                "None deletes the aggregate; return the aggregate, for example from a def with a second line"
            )
        return new

    return aggregator


def _returns_nothing(code: CodeType) -> bool:
    """Return whether a function has effects, and only None as its result."""
    before: dis.Instruction | None = None
    effects = False
    for each in dis.get_instructions(code):
        if each.opname == "RETURN_CONST":
            if each.argval is not None:
                return False
        elif each.opname == "RETURN_VALUE":
            # A jump to it brings another value than the one that is loaded before it, as of `a if b else None`.
            if each.is_jump_target or before is None or before.opname != "LOAD_CONST" or before.argval is not None:
                return False
        elif each.opname in ("RETURN_GENERATOR", "YIELD_VALUE", "RAISE_VARARGS"):
            return False
        effects = effects or each.opname.startswith(_EFFECTS)
        before = each
    return effects
