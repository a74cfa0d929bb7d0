"""Requests of the Python client: kept connections, several workers to ask, answers line by line."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from millpond.backoff import Backoff
from millpond.errors import ConfigError

from .access import Tokens, client_context
from .failures import Failure, FailureReason, QueryFailed
from .messages import LENGTH

__all__ = ("Transport",)

#: Workers give up at the deadline and say why: that answer is waited for.
_GRACE_S = 2.0
_BACKOFF = Backoff(timedelta(milliseconds=20), timedelta(milliseconds=250))
_MOST_KEPT = 4

_Connection = http.client.HTTPConnection
_TROUBLES = (OSError, http.client.HTTPException)


class _Address(NamedTuple):
    host: str
    port: int
    secure: bool


class _Error(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    error: Failure


_errors = msgspec.json.Decoder(_Error)


@dataclass
class _Reading:
    """An answer that is being read."""

    answer: http.client.HTTPResponse
    whole: bool = False
    """Whether it was read to its end."""


class Transport:
    """Asks one worker after the other until one answers. Safe for several threads."""

    def __init__(self, urls: tuple[str, ...], *, token_file: Path | None = None, ca_file: Path | None = None) -> None:
        """Args:
        urls: base URLs of workers.
        token_file: its first token is shown to workers; it is read again when it changes.
        ca_file: certificates to trust, in PEM; the system's unless given.

        Raises:
            ConfigError: there is none, one is no URL, or a file cannot be read.
        """
        if not urls:
            raise ConfigError("a query client needs the URL of at least one worker, such as http://localhost:8080.")
        self._addresses: list[_Address] = []
        for url in urls:
            parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"'{url}' is no URL of a worker: it should look like http://localhost:8080.")
            secure = parts.scheme == "https"
            self._addresses.append(_Address(parts.hostname, parts.port or (443 if secure else 80), secure))
        self._tokens = None if token_file is None else Tokens(token_file)
        secured = any(address.secure for address in self._addresses)
        self._tls = client_context(ca_file) if secured or ca_file is not None else None
        self._kept: dict[_Address, list[_Connection]] = {address: [] for address in self._addresses}
        self._lock = threading.Lock()

    def one(self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float) -> Any:
        """The JSON object that answers a request.

        Args:
            segments: of the path.
            query: the parameters.
            timeout_s: how long the workers may take.

        Raises:
            QueryFailed: there is no answer.
        """
        address, connection, answer = self._asked(segments, query, timeout_s)
        try:
            body = answer.read()
        except _TROUBLES as error:
            connection.close()
            raise _cut(address, error) from error
        self._keep(address, connection)
        return msgspec.json.decode(body)

    def lines(self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float) -> Iterator[bytes]:
        """The lines of an answer, which is asked for when the first is wanted.

        One that was cut off ends without its last line, and raises nothing.

        Raises:
            QueryFailed: there is no answer.
        """
        with self._read(segments, query, timeout_s) as read:
            while True:
                line = read.answer.readline()
                if not line.endswith(b"\n"):
                    read.whole = not line
                    return
                yield line

    def frames(
        self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float
    ) -> Generator[bytes, None, None]:
        """The frames of an answer, without their lengths; it is asked for when the first is wanted.

        One that was cut off ends without its last frame, and raises nothing.

        Raises:
            QueryFailed: there is no answer.
        """
        with self._read(segments, query, timeout_s) as read:
            while len(start := read.answer.read(LENGTH.size)) == LENGTH.size:
                (length,) = LENGTH.unpack(start)
                frame = read.answer.read(length)
                if len(frame) < length:
                    return
                yield frame
            read.whole = not start

    @contextmanager
    def _read(self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float) -> Iterator[_Reading]:
        """An answer that is read piece by piece: one that breaks off ends the block, and only a whole one keeps its connection."""
        address, connection, answer = self._asked(segments, query, timeout_s)
        read = _Reading(answer)
        try:
            yield read
        except _TROUBLES:
            return
        finally:
            if read.whole and answer.isclosed():
                self._keep(address, connection)
            else:
                connection.close()

    def _asked(
        self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float
    ) -> tuple[_Address, _Connection, http.client.HTTPResponse]:
        path = "/v1/" + "/".join(quote(each, safe="") for each in segments)
        if query:
            path += "?" + urlencode(query)
        deadline = time.monotonic() + timeout_s
        waits = iter(_BACKOFF)
        trouble: Exception = OSError("not asked")
        refused: QueryFailed | None = None
        while True:
            for address in self._addresses:
                left = max(deadline - time.monotonic(), 0.0)
                try:
                    connection, answer = self._sent(address, path, left + _GRACE_S)
                except _TROUBLES as error:
                    trouble = error
                    continue
                if answer.status == 200:
                    return address, connection, answer
                failed = self._refused(address, connection, answer)
                if failed.reason is FailureReason.NOT_ACTIVE and not failed.partitions and time.monotonic() < deadline:
                    # The worker itself has just started: another one, or a moment, may help.
                    refused = failed
                    continue
                raise failed
            pause = next(waits)
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        if refused is not None:
            raise refused
        tried = ", ".join(f"{each.host}:{each.port}" for each in self._addresses)
        raise QueryFailed(
            FailureReason.NOT_PRESENT,
            f"no worker answers at {tried} ({trouble}): are they running, and is 'http.host' an address others reach?",
        ) from trouble

    def _sent(self, address: _Address, path: str, timeout_s: float) -> tuple[_Connection, http.client.HTTPResponse]:
        while True:
            with self._lock:
                kept = self._kept[address].pop() if self._kept[address] else None
            connection = kept or self._opened(address)
            connection.timeout = timeout_s
            if connection.sock is not None:
                connection.sock.settimeout(timeout_s)
            try:
                connection.request("GET", path, headers=self._headers())
                return connection, connection.getresponse()
            except _TROUBLES as error:
                connection.close()
                if kept is None or isinstance(error, TimeoutError):
                    raise
                # The worker closed a connection that was not used for a while: with a new one it may well answer.

    def _opened(self, address: _Address) -> _Connection:
        if not address.secure:
            return _Connection(address.host, address.port)
        return http.client.HTTPSConnection(address.host, address.port, context=self._tls)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, application/x-ndjson"}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.own}"
        return headers

    def _refused(self, address: _Address, connection: _Connection, answer: http.client.HTTPResponse) -> QueryFailed:
        try:
            body = answer.read()
            self._keep(address, connection)
            return QueryFailed.of(_errors.decode(body).error)
        except _TROUBLES as error:
            connection.close()
            return _cut(address, error)
        except msgspec.DecodeError:
            where = f"{address.host}:{address.port}"
            return QueryFailed(
                FailureReason.NOT_PRESENT,
                f"what listens at {where} answers with status {answer.status}, and not as a millpond worker does.",
            )

    def _keep(self, address: _Address, connection: _Connection) -> None:
        with self._lock:
            kept = self._kept[address]
            if connection.sock is not None and len(kept) < _MOST_KEPT:
                kept.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            connections = [each for kept in self._kept.values() for each in kept]
            for kept in self._kept.values():
                kept.clear()
        for connection in connections:
            connection.close()


def _cut(address: _Address, error: Exception) -> QueryFailed:
    return QueryFailed(
        FailureReason.NOT_PRESENT, f"the answer of {address.host}:{address.port} was cut off ({error}): ask again."
    )
