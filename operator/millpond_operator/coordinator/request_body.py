"""Reading a request's body: no more of it than its sender may send, and no later."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from aiohttp import web

__all__ = ("Slow", "TooLarge", "read_body")


class TooLarge(Exception):
    """A body has more bytes than it may have."""


class Slow(Exception):
    """A body did not come in time."""


async def read_body(request: web.Request, most: int, within: timedelta) -> bytes:
    """Read a body.

    Args:
        request: whose body is wanted.
        most: bytes that it may have.
        within: how long it may take.

    Raises:
        TooLarge: it has more; nothing of it is read if it says so beforehand.
        Slow: it takes longer.
    """
    if (request.content_length or 0) > most:
        raise TooLarge
    pieces, size = [], 0
    try:
        async with asyncio.timeout(within.total_seconds()):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > most:
                    raise TooLarge
                pieces.append(piece)
    except TimeoutError as error:
        raise Slow from error
    return b"".join(pieces)
