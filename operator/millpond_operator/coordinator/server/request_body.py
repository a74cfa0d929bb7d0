"""Reads the body of a request, with limits on its size and its time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from aiohttp import web

__all__ = ("BodyTooLarge", "BodyTooSlow", "read_body")


class BodyTooLarge(Exception):
    """A body is larger than allowed."""


class BodyTooSlow(Exception):
    """A body did not arrive in time."""


async def read_body(request: web.Request, most: int, within: timedelta) -> bytes:
    """Read the body of a request.

    Args:
        request: the request.
        most: the largest accepted size, in bytes.
        within: the longest accepted time.

    Raises:
        BodyTooLarge: the body has more bytes. If its header says so, nothing is read.
        BodyTooSlow: the body did not arrive in time.
    """
    if (request.content_length or 0) > most:
        raise BodyTooLarge
    pieces, size = [], 0
    try:
        async with asyncio.timeout(within.total_seconds()):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > most:
                    raise BodyTooLarge
                pieces.append(piece)
    except TimeoutError as error:
        raise BodyTooSlow from error
    return b"".join(pieces)
