"""Checks of what users pass: what a thing is, which word was meant, and whether a function can be called as it will be."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable
from pathlib import PurePath
from types import ModuleType
from typing import Any

from .errors import TopologyError

__all__ = ("check_function", "kind_of", "nearest")

_STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_COUNTED = ("no parameter", "one parameter", "two parameters", "three parameters", "four parameters")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely stands for, or None when none is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def kind_of(given: object) -> str:
    """What a thing is, for a message: `a KStream`, `the class str`, `the text 'in'`, `a lambda`; never an address."""
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
    """Refuse what cannot be called with `arguments`: no function at all, `async def`, or other parameters.

    What does not tell its parameters, as some functions written in C, is not refused.

    Args:
        what: takes the function, such as `filter()`; messages begin with it.
        function: what was given.
        arguments: names of what it is called with, in order.
        cure: what to do about other parameters; without, how many it has to have.
        instead: what to write in place of what is no function.
        iterated: whether a generator may be returned.

    Raises:
        TopologyError: the function cannot be called so.
    """
    called = f"({', '.join(arguments)})"
    if not callable(function):
        wanted = f"a function of {called}" if arguments else "a function without arguments"
        raise TopologyError(f"{what} needs {wanted}, not {kind_of(function)}{instead and f'; {instead}'}.")
    if _is(inspect.iscoroutinefunction, function) or _is(inspect.isasyncgenfunction, function):
        raise TopologyError(
            f"{what} is given {_named(function)}, which is an async def: nothing awaits what it returns; write a plain "
            "def, which processes one record at a time."
        )
    if not iterated and _is(inspect.isgeneratorfunction, function):
        raise TopologyError(
            f"{what} is given {_named(function)}, which has a yield: calling it runs none of it; return the result."
        )
    try:
        # Not that of a decorated function: the decorator may take other arguments, and hand on others.
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
            f"{what} calls {_named(function)} with {called}, but it takes ({_listed(signature)}); {cure}."
        ) from None


def _is(test: Any, function: Any) -> bool:
    """Whether a test of `inspect` holds for a function, a partial of one, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    if test(function) or isinstance(function, type):
        return bool(test(function))
    return bool(test(vars(type(function)).get("__call__")))


def _named(function: Any) -> str:
    """A function and where it is, as a person would look for it."""
    code = getattr(function, "__code__", None)
    place = "" if code is None else f" ({PurePath(code.co_filename).name}, line {code.co_firstlineno})"
    if isinstance(function, functools.partial):
        return f"a partial of {_named(function.func)}"
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
