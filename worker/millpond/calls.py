"""Decorators that check the arguments of public methods: their names, their number, and serdes.

A whole class is decorated, so that no method is forgotten. The methods are called while a topology is built, and
never per record, except by tests that pipe records.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from millpond.serdes.checking import check_serde

from .checks import hides_frames, kind_of, nearest
from .errors import TopologyError
from .names import absent, java_names, moved

__all__ = ("MovedName", "checked", "checked_call", "checked_class")

__tracebackhide__ = hides_frames

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

_SERDES = ("key", "value")
_TEXTS = ("name", "store")
_FLAGS = ("with_key", "caching", "persistent")
_RETENTION = "only windows have a retention; call windowed_by() before it, or delete keys by records without a value"


def checked(cls: C) -> C:
    """Decorate a class: wrong calls of its public methods raise a TopologyError with the cause and the cure.

    An unknown attribute raises an AttributeError with the right name, or says that millpond does not have it yet.
    """
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(cls, name, checked_call(member))
    # Type checkers do not see it here, and so report unknown names.
    cls.__getattr__ = _no_such_attribute  # type: ignore[attr-defined]
    return cls


def checked_class(cls: C) -> C:
    """Decorate a class of options: its constructor is checked like the methods of a `checked` class."""
    cls.__init__ = _checked(cls.__init__, cls.__name__)  # type: ignore[misc]
    cls.__getattr__ = _no_such_attribute  # type: ignore[attr-defined]
    static = [name for name, member in vars(cls).items() if isinstance(member, staticmethod | classmethod)]
    for name in java_names((*moved(cls.__name__), *static)):
        if name not in vars(cls):
            setattr(cls, name, MovedName(name))
    return cls


def checked_call(function: F) -> F:
    """Decorate a public function or method: see `checked`."""
    return _checked(function, f"{function.__name__}()")


def _checked(function: F, shown: str) -> F:  # noqa: C901 - two functions
    function.__globals__.setdefault("__tracebackhide__", hides_frames)
    signature = inspect.signature(function)
    parameters = signature.parameters
    options = _options(function, signature)
    known = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and name != "self"
    ]
    known += options
    anything = not options and any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    serdes = [name for name in _SERDES if name in known]
    flags = [name for name in _FLAGS if name in known]
    texts = [name for name in _TEXTS if name in known]
    least, by_name = _plain_calls(signature)

    def check_keywords(keywords: dict[str, Any]) -> None:
        for name in keywords:
            if name not in known and not anything:
                raise TopologyError(_unknown(shown, name, known))
        for name in serdes:
            if name in keywords:
                check_serde(f"{shown.removesuffix('()')}({name}=…)", keywords[name])
        for name in flags:
            if name in keywords and not isinstance(keywords[name], bool):
                raise TopologyError(f"{shown} needs True or False for {name}=, not {kind_of(keywords[name])}.")
        for name in texts:
            if not isinstance(keywords.get(name), str | None):
                raise TopologyError(f"{shown} needs a string for {name}=, not {kind_of(keywords[name])}.")

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        check_keywords(keywords)
        if not (least <= len(arguments) < len(by_name) and keywords.keys() <= by_name[len(arguments)]):
            try:
                signature.bind(*arguments, **keywords)
            except TypeError as error:
                raise TopologyError(_misfit(shown, arguments, keywords, signature, options, error)) from None
        return function(*arguments, **keywords)

    return call  # type: ignore[return-value]


def _plain_calls(signature: inspect.Signature) -> tuple[int, list[frozenset[str]]]:
    """Describe the calls that need no closer look: those whose unnamed arguments include all that are required.

    Returns:
        The lowest number of unnamed arguments; and, for each number up to the highest one, the names of those that may
        be named. The list is empty if all calls need a closer look.
    """
    parameters = signature.parameters.values()
    named = [each for each in parameters if each.kind is each.KEYWORD_ONLY]
    unnamed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if any(each.default is each.empty for each in named):
        return 0, []
    by_name = [
        frozenset(each.name for each in (*unnamed[count:], *named) if each.kind is not each.POSITIONAL_ONLY)
        for count in range(len(unnamed) + 1)
    ]
    return sum(each.default is each.empty for each in unnamed), by_name


def explains_names(cls: C) -> C:
    """Let unknown names of a class lead to what takes their place, if Kafka Streams has them."""
    cls.__getattr__ = _no_such_attribute  # type: ignore[attr-defined]
    return cls


class MovedName:
    """A static name of Kafka Streams that a class does not have: to read it raises the error that says what to use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise AttributeError(absent(owner.__name__, self._name, dir(owner)), name=self._name)


def _no_such_attribute(self: object, name: str) -> Any:
    cls = type(self)
    raise AttributeError(absent(cls.__name__, name, dir(cls)), name=name)


def _options(function: Callable[..., Any], signature: inspect.Signature) -> list[str]:
    """Return the keyword arguments of a TypedDict: `**materialized: Unpack[Materialized[K, V]]`."""
    for parameter in signature.parameters.values():
        found = re.match(r"Unpack\[(\w+)", str(parameter.annotation))
        if parameter.kind is parameter.VAR_KEYWORD and found:
            return list(function.__globals__[found[1]].__annotations__)
    return []


def _unknown(shown: str, name: str, known: list[str]) -> str:
    if name == "retention" and "store" in known:
        return f"{shown} has no argument 'retention', because {_RETENTION}."
    near = nearest(name, known)
    if near:
        return f"{shown} has no argument '{name}'; did you mean '{near}'?"
    others = f"it has {', '.join(known)}" if known else "it has none"
    return f"{shown} has no argument '{name}'; {others}."


def _misfit(  # noqa: PLR0913 - one call and its signature
    shown: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    signature: inspect.Signature,
    options: list[str],
    error: TypeError,
) -> str:
    unnamed = [name for name, each in signature.parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    own = 1 if unnamed[:1] == ["self"] else 0
    extra = arguments[len(unnamed) :]
    if extra:
        takes = f"only {', '.join(unnamed[own:])}" if unnamed[own:] else "none"
        named = [*options, *(name for name, each in signature.parameters.items() if each.kind is each.KEYWORD_ONLY)]
        cure = f"; give the others by name, such as {named[0]}=" if named else ""
        return f"{shown} was given {kind_of(extra[0])} as an argument without a name, of which it takes {takes}{cure}."
    missing = [
        name
        for name, each in signature.parameters.items()
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        and name not in keywords
        and name not in unnamed[: len(arguments)]
    ]
    if missing:
        return f"{shown} needs {' and '.join(missing)}; {'they are' if len(missing) > 1 else 'it is'} not given."
    return f"{shown} cannot be called with these arguments: {error}."
