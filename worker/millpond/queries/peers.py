"""Reading what other workers hold, and answering them.

A worker that is asked by another one answers from what it holds, or refuses: it never asks further. So however wrong
the directories are, no query goes round in circles.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec

from .access import Tokens
from .failures import FailureReason, QueryFailed
from .local import LocalReader, LocalScan
from .messages import Head, Read, Row, RowsEnd, decode_read, encode_frame, encode_read, frames

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

__all__ = ("PATH", "Peers", "RemoteScan", "RowScan", "answer_peer")

log = logging.getLogger(__name__)

PATH = "/v1/partitions/read"
_CONTENT_TYPE = "application/vnd.millpond.rows.v1"
_CONNECT_S = 1.0


class RowScan(Protocol):
    """One request's rows, piece by piece, wherever they are."""

    head: Head | None
    done: bool
    end: RowsEnd

    async def piece(self) -> list[Row]:
        """The next rows; none when `done`. Raises QueryFailed."""

    def close(self) -> None:
        """Let go of what it reads from."""


class RemoteScan:
    """Rows of partitions that another worker holds.

    Attributes:
        head: what can be said of the rows, once there was a piece.
        done: whether the last piece was the last one.
        end: what can be said of all rows, when `done`.
    """

    def __init__(
        self, session: aiohttp.ClientSession, worker: str, address: str, read: Read, tokens: Tokens | None = None
    ) -> None:
        self.head: Head | None = None
        self.done = False
        self.end = RowsEnd()
        self._session = session
        self._worker = worker
        self._address = address
        self._read = read
        self._tokens = tokens
        self._answer: aiohttp.ClientResponse | None = None
        self._frames: AsyncIterator[list[Row] | Head | RowsEnd] | None = None

    async def piece(self) -> list[Row]:
        """The next rows; none when `done`.

        Raises:
            QueryFailed: the worker refused, or it cannot be reached, or its answer was cut off.
        """
        import aiohttp

        try:
            if self._frames is None:
                self._frames = frames((await self._asked()).content)
            async for frame in self._frames:
                if isinstance(frame, Head):
                    self.head = frame
                elif isinstance(frame, RowsEnd):
                    return self._ended(frame)
                elif frame:
                    return frame
            raise asyncio.IncompleteReadError(b"", None)
        except (aiohttp.ClientError, OSError, EOFError, TimeoutError, msgspec.DecodeError) as error:
            self.close()
            raise self._lost(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error

    async def _asked(self) -> aiohttp.ClientResponse:
        headers = {"Content-Type": _CONTENT_TYPE}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.own}"
        answer = await self._session.post(
            self._address + PATH, data=encode_read(self._read), headers=headers, allow_redirects=False
        )
        self._answer = answer
        if answer.status != 200 or answer.content_type != _CONTENT_TYPE:
            self.close()
            raise self._lost(f"it answers with status {answer.status} and {answer.content_type}")
        return answer

    def _ended(self, end: RowsEnd) -> list[Row]:
        self.end = end
        self.done = True
        if self._answer is not None:
            self._answer.release()
            self._answer = None
        if end.failure is not None:
            raise QueryFailed.of(end.failure)
        return []

    def _lost(self, why: str) -> QueryFailed:
        return QueryFailed(
            FailureReason.NOT_PRESENT,
            f"worker '{self._worker}' at {self._address} cannot be read from ({why}).",
            self._read.partitions,
        )

    def close(self) -> None:
        """End the connection, unless the answer was read to its end."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class Peers:
    """Connections to other workers. Nothing of a client's request goes there but what a `Read` says."""

    def __init__(self, session: aiohttp.ClientSession, tokens: Tokens | None = None) -> None:
        self._session = session
        self._tokens = tokens

    @classmethod
    @asynccontextmanager
    async def open(cls, tls: ssl.SSLContext | None = None, tokens: Tokens | None = None) -> AsyncIterator[Peers]:
        """Have them while the block runs.

        Args:
            tls: for workers with HTTPS; None to trust whom the system trusts.
            tokens: what this worker shows to others; None for nothing.
        """
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
        # No limit: answers that wait for each other's connections would wait for ever.
        connector = aiohttp.TCPConnector(limit=0, ssl=True if tls is None else tls)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            yield cls(session, tokens)

    def scan(self, worker: str, address: str, read: Read) -> RemoteScan:
        """Rows that a worker holds."""
        return RemoteScan(self._session, worker, address, read, self._tokens)


async def answer_peer(reader: LocalReader, request: web.Request) -> web.StreamResponse:
    """Answer another worker from what this one holds."""
    from aiohttp import web

    try:
        read = decode_read(await request.read())
    except msgspec.DecodeError as error:
        return web.Response(status=400, text=f"{error}\n")
    if read.application != reader.catalog.application:
        return web.Response(status=404, text=f"this worker is of application '{reader.catalog.application}'\n")
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
                    await asyncio.wait_for(response.write(body), read.timeout_ms / 1000)
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
