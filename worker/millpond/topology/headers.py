"""Headers of a record that a processor is given: a list that can be read, and is never None."""

from __future__ import annotations

from typing import Any, NoReturn

from millpond.checks import kind_of
from millpond.errors import TopologyError

from .context import Headers

__all__ = ("NO_HEADERS", "RecordHeaders", "check_headers")

_PAIRS = "a list of (name, value) pairs such as [('trace', b'17')]"


class RecordHeaders(list[tuple[str, bytes | None]]):
    """A list that refuses to be changed in place, because every processor that gets the record sees the same list."""

    __slots__ = ()

    def _refuse(self, *_arguments: Any, **_keywords: Any) -> NoReturn:
        raise TopologyError(
            "The headers of a record cannot be changed in place, because other processors see the same record; forward "
            "record.with_headers([*record.headers, ('name', b'value')])."
        )

    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is the copier's own


NO_HEADERS = RecordHeaders()
"""Of every record without headers."""


def check_headers(headers: Any) -> Headers:
    """The headers, when they are a list of pairs of a name and bytes or None.

    Raises:
        TopologyError: they are not.
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
        if not isinstance(pair[1], bytes | None):
            raise TopologyError(
                f"The value of header {pair[0]!r} has to be bytes or None, and is of type {type(pair[1]).__name__}; "
                "encode it."
            )
    return headers if isinstance(headers, list) else list(headers)
