"""Checks of the results of users' functions: pairs and iterables."""

from __future__ import annotations

from typing import Any

__all__ = ("as_items", "as_pair")


def as_pair(operator: str, given: Any) -> tuple[Any, Any]:
    """Return the two items of a pair that is not a tuple, such as a list of two.

    Raises:
        TypeError: the object is not a pair. A string of two letters does not count as one.
    """
    if isinstance(given, str | bytes | dict | set | frozenset):
        raise TypeError(_no_pair(operator, given))
    try:
        key, value = given
    except TypeError:
        raise TypeError(_no_pair(operator, given)) from None
    except ValueError:
        raise TypeError(f"{_no_pair(operator, given)} of another length") from None
    return key, value


def as_items(operator: str, given: Any) -> tuple[Any, ...]:
    """Return the items of an iterable that a function returned.

    Raises:
        TypeError: the result cannot be iterated, or is a string or bytes.
    """
    kind = type(given)
    if kind is str or kind is bytes:  # they can be iterated, but a record per letter is never meant
        raise TypeError(
            f"{operator} needs a list or another iterable from its function, and got a {kind.__name__}, whose letters "
            "would be the records; return a list with it"
        )
    try:
        iterator = iter(given)
    except TypeError:
        name = "None" if given is None else f"a {kind.__name__}"
        raise TypeError(f"{operator} needs a list or another iterable from its function, and got {name}") from None
    return tuple(iterator)


def _no_pair(operator: str, given: Any) -> str:
    name = "None" if given is None else f"a {type(given).__name__}"
    return f"{operator} needs a tuple (key, value) from its function, and got {name}"
