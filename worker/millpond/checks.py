"""Checks of users' arguments: the kind of an object, the nearest known word, and the parameters of functions."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable
from pathlib import PurePath
from types import ModuleType
from typing import Any

from .errors import TopologyError

__all__ = ("check_function", "hides_frames", "kind_of", "named", "nearest")


def hides_frames(raised: Any) -> bool:
    """Return whether pytest leaves out frames of millpond: for an error of a topology, which is about the user's line.

    It is the value of `__tracebackhide__` in modules that check users' calls.

    Args:
        raised: pytest's information about the exception.
    """
    return isinstance(getattr(raised, "value", None), TopologyError)


__tracebackhide__ = hides_frames

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_AWAITING = dict.fromkeys(
    ("map_values()", "map()", "peek()", "foreach()", "flat_map_values()", "filter()"),
    ", or give it to map_values_async(), which awaits several records at a time",
)
_COUNTED = ("no parameter", "one parameter", "two parameters", "three parameters", "four parameters")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is nearest to a word, or None if none is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def kind_of(given: object) -> str:
    """Return the kind of an object, for a message: `a KStream`, `the class str`, `the text 'in'`, `a lambda`."""
    match given:
        case None | True | False:
            return str(given)
        case str():
            return f"the text {given!r}" if len(given) <= 40 else "a text"
        case int() | float():
            return f"the number {given!r}"
        case type():
            return f"the class {given.__name__}"
        case ModuleType():
            return f"the module {given.__name__}"
    if inspect.isroutine(given):
        name = getattr(given, "__name__", "")
        return "a lambda" if name == "<lambda>" else f"the function {name}"
    name = type(given).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def check_function(
    what: str, function: object, *arguments: str, cure: str = "", instead: str = "", iterated: bool = False
) -> None:
    """Check that a function can be called with some arguments, and is not an `async def`.

    Functions whose parameters are unknown, such as some that are written in C, pass.

    Args:
        what: the operator that the function is given to, such as `filter()`, for messages.
        function: what the user gave.
        arguments: the names of the arguments that the operator passes, in their order.
        cure: the cure for other parameters; default: the number of parameters that the operator needs.
        instead: the cure for an object that is not a function.
        iterated: whether a generator function is allowed.

    Raises:
        TopologyError: the object is not a function, or cannot be called so.
    """
    called = f"({', '.join(arguments)})"
    if not callable(function):
        wanted = f"a function of {called}" if arguments else "a function without arguments"
        raise TopologyError(f"{what} needs {wanted}, not {kind_of(function)}{instead and f'; {instead}'}.")
    if _is(inspect.iscoroutinefunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TopologyError(
            f"{what} is given {named(function)}, which is an async def, but nothing awaits its result; write a plain "
            f"def{_AWAITING.get(what, '')}."
        )
    if not iterated and _is(inspect.isgeneratorfunction, function):
        raise TopologyError(
            f"{what} is given {named(function)}, which has a yield, so a call runs none of it; return the result."
        )
    try:
        # Not the signature of a decorated function: the decorator may take other arguments than it.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        if not cure:
            keywords = [
                parameter.name
                for parameter in signature.parameters.values()
                if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
            ]
            count = _COUNTED[len(arguments)] if len(arguments) < len(_COUNTED) else f"{len(arguments)} parameters"
            cure = f"give {keywords[0]} a default" if keywords else f"give it {count}"
        raise TopologyError(
            f"{what} calls {named(function)} with {called}, but it takes ({_listed(signature)}); {cure}."
        ) from None


def _is(test: Any, function: Any) -> bool:
    """Return the result of a test of `inspect` for a function, a partial of one, or an object with `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if test(function) or isinstance(function, type):
        return bool(test(function))
    return bool(test(vars(type(function)).get("__call__")))


def named(function: Any) -> str:
    """Return a function's name and place, for a message."""
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({PurePath(code.co_filename).name}, line {code.co_firstlineno})"
    if isinstance(function, functools.partial):
        return f"a partial of {named(function.func)}"
    if isinstance(function, type):
        return f"the class {function.__name__}"
    name = getattr(function, "__name__", None)
    if name is None:
        return f"a {type(function).__name__}"
    return f"the lambda{place}" if name == "<lambda>" else f"'{name}'{place}"


def _listed(signature: inspect.Signature) -> str:
    shown: list[str] = []
    for parameter in signature.parameters.values():
        star = _STARS.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else "=…"
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        shown.append(f"{star}{parameter.name}{default}")
    return ", ".join(shown)
