"""The headers of the records that processors get: a read-only list, never None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from millpond.checks import kind_of
from millpond.errors import TopologyError
from millpond.texts import well_formed

from .context import Headers

__all__ = ("NO_HEADERS", "RecordHeaders", "check_headers")

_PAIRS = "a list of (name, value) pairs such as [('trace', b'17')]"


class RecordHeaders(list[tuple[str, bytes | None]]):
    """A list that cannot be changed in place, because every processor of the record sees the same list."""

    __slots__ = ()

    def _reject(self, *_arguments: Any, **_keywords: Any) -> NoReturn:
        raise TopologyError(
            "The headers of a record cannot be changed in place, because other processors see the same record; forward "
            "record.with_headers([*record.headers, ('name', b'value')])."
        )

    if not TYPE_CHECKING:  # for type checkers it is a list as any other
        append = extend = insert = remove = pop = clear = sort = reverse = _reject
        __setitem__ = __delitem__ = __iadd__ = __imul__ = _reject

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is an ordinary list


NO_HEADERS = RecordHeaders()
"""The headers of every record without headers."""


def check_headers(headers: Any) -> Headers:
    """Return headers as a list of pairs of a name and bytes or None.

    Raises:
        TopologyError: the headers are something else.
    """
    if isinstance(headers, dict):
        raise TopologyError(
            f"Headers are {_PAIRS}, not a dict, because a name may occur twice; write list(headers.items())."
        )
    if not isinstance(headers, list | tuple):
        raise TopologyError(f"Headers are {_PAIRS}, not {kind_of(headers)}.")
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TopologyError(f"Headers are {_PAIRS}, but one is {kind_of(pair)}.")
        if well_formed(pair[0]) != pair[0]:
            raise TopologyError(
                f"The name {pair[0]!a} of a header contains half a character, which has no UTF-8; replace it."
            )
        if not isinstance(pair[1], bytes | None):
            raise TopologyError(
                f"The value of header {pair[0]!r} has to be bytes or None, and is of type {type(pair[1]).__name__}; "
                "encode it."
            )
    return headers if isinstance(headers, list) else list(headers)
