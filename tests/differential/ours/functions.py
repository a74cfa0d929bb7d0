"""The user functions of a case, by name, as in java/Functions.java. A name may have an argument: `append:x`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import millpond as mp

_LONGEST = 40

Pair = tuple[Any, Any]


def text(it: Any) -> str:
    """Return the text of a key or value: of a window its key and both times."""
    if isinstance(it, mp.Windowed):
        return f"{text(it.key)}@{it.start_ms}/{it.end_ms}"
    return "null" if it is None else str(it)


def cap(whole: str) -> str:
    """Return the last characters of a text, so that values do not grow without end."""
    return whole[-_LONGEST:]


def _last(whole: str) -> str:
    return whole[-1] if whole else "0"


def _low(v: Any) -> bool:
    return v is not None and _last(text(v)) < "5"


def _odd(k: Any) -> bool:
    return ord(_last(text(k))) % 2 == 1


def _letter(v: Any) -> str | None:
    return None if v is None else text(v)[:1]


def _digit(v: Any) -> str:
    return f"k{_last(text(v))}"


def _text_or_none(it: Any) -> str | None:
    return None if it is None else text(it)


PREDICATES: dict[str, Callable[[str], Callable[[Any, Any], bool]]] = {
    "all": lambda _: lambda k, v: True,
    "none": lambda _: lambda k, v: False,
    "low": lambda _: lambda k, v: _low(v),
    "not-null": lambda _: lambda k, v: v is not None,
    "starts": lambda x: lambda k, v: text(v).startswith(x),
    "has-key": lambda _: lambda k, v: k is not None,
    "key-odd": lambda _: lambda k, v: _odd(k),
}

MAPPERS: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "upper": lambda _: lambda v: None if v is None else text(v).upper(),
    "append": lambda x: lambda v: cap(text(v) + x),
    "null-if": lambda x: lambda v: None if text(v).startswith(x) else text(v),
    "letter": lambda _: _letter,
    "fixed": lambda x: lambda v: x,
}

KEYED: dict[str, Callable[[str], Callable[[Any, Any], Any]]] = {
    "glue": lambda _: lambda k, v: cap(f"{text(k)}={text(v)}"),
    "null-if-odd": lambda _: lambda k, v: None if _odd(k) else text(v),
}

SELECTORS: dict[str, Callable[[str], Callable[[Any, Any], Any]]] = {
    "key": lambda _: lambda k, v: _text_or_none(k),
    "letter": lambda _: lambda k, v: _letter(v),
    "digit": lambda _: lambda k, v: _digit(v),
    "null-if-low": lambda _: lambda k, v: None if _low(v) or k is None else text(k),
    "part": lambda _: lambda k, v: None if k is None else text(k).split("@")[0],
    "fixed": lambda x: lambda k, v: x,
}


def _pair(k: Any, v: Any) -> Pair:
    return _text_or_none(k), None if v is None else cap(text(v))


FLAT: dict[str, Callable[[str], Callable[[Any, Any], list[Pair]]]] = {
    "none-if-low": lambda _: lambda k, v: [] if _low(v) else [_pair(k, v)],
    "twice": lambda _: lambda k, v: [_pair(k, v), _pair(k, f"{text(v)}!")],
    "swapped": lambda _: lambda k, v: [_pair(text(v), text(k)), _pair(k, v)],
}


def values(pairs: Iterable[Pair]) -> list[Any]:
    """Return the values of pairs."""
    return [v for _, v in pairs]


JOINERS: dict[str, Callable[[str], Callable[[Any, Any], Any]]] = {
    "glue": lambda _: lambda a, b: cap(f"{text(a)}|{text(b)}"),
    "left": lambda _: lambda a, b: _text_or_none(a),
    "right": lambda _: lambda a, b: _text_or_none(b),
    "null-if-low": lambda _: lambda a, b: None if _low(b) else cap(f"{text(a)}|{text(b)}"),
}

REDUCERS: dict[str, Callable[[str], Callable[[Any, Any], Any]]] = {
    "plus": lambda _: lambda a, b: cap(f"{text(a)}+{text(b)}"),
    "minus": lambda _: lambda a, b: cap(f"{text(a)}-{text(b)}"),
    "last": lambda _: lambda a, b: "n0" if b is None else text(b),
    "null-if-low": lambda _: lambda a, b: None if _low(b) else cap(f"{text(a)}+{text(b)}"),
    "sum": lambda _: lambda a, b: a + b,
    "difference": lambda _: lambda a, b: a - b,
}

AGGREGATORS: dict[str, Callable[[str], Callable[[Any, Any, Any], Any]]] = {
    "plus": lambda _: lambda k, v, a: cap(f"{text(a)}+{text(v)}"),
    "minus": lambda _: lambda k, v, a: cap(f"{text(a)}-{text(v)}"),
    "with-key": lambda _: lambda k, v, a: cap(f"{text(a)},{text(k)}{text(v)}"),
    "null-if-low": lambda _: lambda k, v, a: None if _low(v) else cap(f"{text(a)}+{text(v)}"),
}

FOREIGN: dict[str, Callable[[str], Callable[[Any], Any]]] = {
    "letter": lambda _: _letter,
    "digit": lambda _: _digit,
    "null-if-low": lambda _: lambda v: None if _low(v) else _digit(v),
}

FOREIGN_KEYED: dict[str, Callable[[str], Callable[[Any, Any], Any]]] = {
    "digit": lambda _: lambda k, v: _digit(v),
    "key-or-digit": lambda _: lambda k, v: text(k) if _low(v) else _digit(v),
}


def made(family: dict[str, Callable[[str], Any]], name: str) -> Any:
    """Return the function of a family that a name with its argument stands for."""
    kind, _, argument = name.partition(":")
    return family[kind](argument)


def initial(name: str) -> str | None:
    """Return the value with which an aggregate begins."""
    return None if name == "null" else name
