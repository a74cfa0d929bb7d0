"""Reads between workers: requests to other workers, and answers to theirs.

A worker answers another one only from the stores that it holds, or rejects the request; it never forwards it. So no
query travels in circles, however outdated the task directories are.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from millpond.texts import said

from .access import Tokens
from .failures import FailureReason, QueryFailed
from .local import LocalReader, LocalScan
from .messages import Head, Read, Row, RowsEnd, decode_read, encode_frame, encode_read, frames

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

__all__ = ("PATH", "Peers", "RemoteScan", "RowScan", "answer_peer")

log: logging.Logger = logging.getLogger(__name__)

PATH = "/v1/partitions/read"
_CONTENT_TYPE = "application/vnd.millpond.rows.v1"
_CONNECT_S = 1.0


class RowScan(Protocol):
    """The reader of one request's rows, piece by piece: a `LocalScan` or a `RemoteScan`."""

    head: Head | None
    done: bool
    end: RowsEnd

    async def piece(self) -> list[Row]:
        """Return the next rows; an empty list only when `done`. Raises QueryFailed."""

    def close(self) -> None:
        """Release the iterator or the connection."""


class RemoteScan:
    """The reader of one request's rows from another worker, piece by piece.

    Attributes:
        head: the position and staleness of the rows; None before the first piece.
        done: whether all pieces were returned.
        end: when `done`, whether the rows are of one moment.
    """

    def __init__(
        self, session: aiohttp.ClientSession, worker: str, address: str, read: Read, tokens: Tokens | None = None
    ) -> None:
        self.head: Head | None = None
        self.done: bool = False
        self.end: RowsEnd = RowsEnd()
        self._session = session
        self._worker = worker
        self._address = address
        self._read = read
        self._tokens = tokens
        self._answer: aiohttp.ClientResponse | None = None
        self._frames: AsyncIterator[list[Row] | Head | RowsEnd] | None = None

    async def piece(self) -> list[Row]:
        """Return the next rows; an empty list only when `done`.

        Raises:
            QueryFailed: the worker rejected the request, cannot be reached, or its answer was cut off.
        """
        import aiohttp

        try:
            if self._frames is None:
                self._frames = frames((await self._send()).content)
            async for frame in self._frames:
                if isinstance(frame, Head):
                    self.head = frame
                elif isinstance(frame, RowsEnd):
                    return self._finish(frame)
                elif frame:
                    return frame
            raise asyncio.IncompleteReadError(b"", None)
        except (aiohttp.ClientError, OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
            self.close()
            raise self._unreachable(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from error

    async def _send(self) -> aiohttp.ClientResponse:
        headers = {"Content-Type": _CONTENT_TYPE}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.own}"
        answer = await self._session.post(
            self._address + PATH, data=encode_read(self._read), headers=headers, allow_redirects=False
        )
        self._answer = answer
        if answer.status != 200 or answer.content_type != _CONTENT_TYPE:
            self.close()
            raise self._unreachable(f"unexpected status {answer.status} or content type {answer.content_type}")
        return answer

    def _finish(self, end: RowsEnd) -> list[Row]:
        self.end = end
        self.done = True
        if self._answer is not None:
            self._answer.release()
            self._answer = None
        if end.failure is not None:
            raise QueryFailed.of(end.failure)
        return []

    def _unreachable(self, why: str) -> QueryFailed:
        return QueryFailed(
            FailureReason.NOT_PRESENT,
            f"cannot read from worker '{self._worker}' at {self._address} ({why}).",
            self._read.partitions,
        )

    def close(self) -> None:
        """Close the connection, unless the answer was read to its end."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class Peers:
    """The connections to other workers. Only the `Read` of a client's request is sent over them."""

    def __init__(self, session: aiohttp.ClientSession, tokens: Tokens | None = None) -> None:
        self._session = session
        self._tokens = tokens

    @classmethod
    @asynccontextmanager
    async def open(cls, tls: ssl.SSLContext | None = None, tokens: Tokens | None = None) -> AsyncIterator[Peers]:
        """Yield the connections and close them after the block.

        Args:
            tls: the TLS context for workers with HTTPS; None for the system's authorities.
            tokens: the tokens to send to other workers; None for none.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        # No limit: queries that wait for each other's connections would deadlock.
        connector = aiohttp.TCPConnector(limit=0, ssl=True if tls is None else tls)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            yield cls(session, tokens)

    def scan(self, worker: str, address: str, read: Read) -> RemoteScan:
        """Return an object that reads rows from another worker."""
        return RemoteScan(self._session, worker, address, read, self._tokens)


async def answer_peer(reader: LocalReader, request: web.Request) -> web.StreamResponse:
    """Answer another worker from the stores that this worker holds."""
    from aiohttp import web

    try:
        read = decode_read(await request.read())
    except msgspec.DecodeError as error:
        return web.Response(status=400, text=f"{said(error)}\n")
    if read.application != reader.catalog.application:
        return web.Response(status=404, text=f"this worker belongs to application '{reader.catalog.application}'\n")
    scan: LocalScan | None = None
    response: web.StreamResponse | None = None
    body = b""
    try:
        try:
            scan = LocalScan(reader, read)
            while not scan.done:
                rows = await scan.piece()
                if not body and response is None:
                    body = encode_frame(scan.head or Head())
                body += encode_frame(rows)
                if not scan.done:
                    response = response or await _opened(request)
                    async with asyncio.timeout(read.timeout_ms / 1000):
                        await response.write(body)
                    body = b""
            body += encode_frame(scan.end)
        except QueryFailed as failed:
            body += encode_frame(RowsEnd(failure=failed.failure))
        if response is None:
            return web.Response(body=body, content_type=_CONTENT_TYPE)
        await response.write_eof(body)
        return response
    finally:
        if scan is not None:
            scan.close()


async def _opened(request: web.Request) -> web.StreamResponse:
    from aiohttp import web

    response = web.StreamResponse()
    response.content_type = _CONTENT_TYPE
    await response.prepare(request)
    return response
