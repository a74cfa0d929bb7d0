"""HTTP requests of the Python client: reused connections, failover between workers, streamed answers."""

from __future__ import annotations

import http.client
import selectors
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from millpond.backoff import Backoff
from millpond.errors import ConfigError, MillpondError

from .access import Tokens, client_context
from .failures import Failure, FailureReason, QueryFailed
from .messages import LENGTH

__all__ = ("Connect", "Find", "Transport")

#: A worker gives up at the deadline and sends the reason: wait this much longer for it.
_GRACE_S = 2.0
_BACKOFF = Backoff(timedelta(milliseconds=20), timedelta(milliseconds=250))
_MAX_IDLE_CONNECTIONS = 4

_Connection = http.client.HTTPConnection
Connect = Callable[[str, int], socket.socket]
"""Opens a connection to a host and port."""
Find = Callable[[float], Iterable[str]]
"""Returns the URLs of workers within some seconds."""
_MIN_FIND_S = 0.1
#: A worker that has not begun to answer for so long is probed, if others can be asked.
_SILENT_S = 1.0
_PROBE = "/healthz"
_CONNECTION_ERRORS = (OSError, http.client.HTTPException)


class _Address(NamedTuple):
    host: str
    port: int
    secure: bool


class _Error(msgspec.Struct, frozen=True):
    """The body of a response with an error status."""

    error: Failure


_errors = msgspec.json.Decoder(_Error)


@dataclass
class _Reading:
    """An answer while it is read."""

    answer: http.client.HTTPResponse
    whole: bool = False
    """Whether the answer was read to its end."""


class Transport:
    """Requests that try one worker after the other until one answers. Thread-safe."""

    def __init__(
        self,
        urls: tuple[str, ...],
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        connect: Connect | None = None,
        find: Find | None = None,
    ) -> None:
        """Create the transport; it connects with the first request.

        Args:
            urls: base URLs of workers.
            token_file: file whose first token is sent to workers; reread when it changes.
            ca_file: certificate authorities to trust (PEM); the default is those of the system.
            connect: opens connections that lead there by another way than the network's; raises OSError.
            find: finds the URLs of the workers, first and when none of the known ones answers; then `urls` may be
                empty. It gets the seconds that it may take, and raises MillpondError.

        Raises:
            ConfigError: no URL is given, a URL is invalid, or a file cannot be read.
        """
        if not urls and find is None:
            raise ConfigError("a query client needs the URL of at least one worker, such as http://localhost:8080.")
        self._connect = connect
        self._find = find
        self._ca_file = ca_file
        self._tokens = None if token_file is None else Tokens(token_file)
        self._tls = client_context(ca_file) if ca_file is not None else None
        self._idle: defaultdict[_Address, list[_Connection]] = defaultdict(list)
        self._lock = threading.Lock()
        self._addresses: list[_Address] = self._parsed(urls)

    def _parsed(self, urls: Iterable[str]) -> list[_Address]:
        """Return the addresses of URLs, and prepare TLS if one of them needs it."""
        addresses = []
        for url in urls:
            parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(f"'{url}' is not the URL of a worker: use a URL such as http://localhost:8080.")
            secure = parts.scheme == "https"
            addresses.append(_Address(parts.hostname, parts.port or (443 if secure else 80), secure))
            if secure and self._tls is None:
                self._tls = client_context(self._ca_file)
        return addresses

    def one(self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float) -> Any:
        """Return the JSON object that answers a request.

        Args:
            segments: the segments of the path.
            query: the parameters.
            timeout_s: how long the workers may take.

        Raises:
            QueryFailed: no worker answered, or the query failed.
        """
        address, connection, answer = self._request(segments, query, timeout_s)
        try:
            body = answer.read()
        except _CONNECTION_ERRORS as error:
            connection.close()
            raise _cut_off(address, error) from error
        self._release(address, connection)
        return msgspec.json.decode(body)

    def lines(self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float) -> Iterator[bytes]:
        """Yield the lines of an answer; the request is sent when the first line is requested.

        An answer that was cut off ends without its last line and raises no error.

        Raises:
            QueryFailed: no worker answered, or the query failed.
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
        """Yield the frames of an answer, without lengths; the request is sent when the first frame is requested.

        An answer that was cut off ends without its last frame and raises no error.

        Raises:
            QueryFailed: no worker answered, or the query failed.
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
        """Yield an answer to read. A cut-off answer ends the block; only a complete answer keeps its connection."""
        address, connection, answer = self._request(segments, query, timeout_s)
        read = _Reading(answer)
        try:
            yield read
        except _CONNECTION_ERRORS:
            return
        finally:
            if read.whole and answer.isclosed():
                self._release(address, connection)
            else:
                connection.close()

    def _request(
        self, segments: tuple[str, ...], query: Mapping[str, str], timeout_s: float
    ) -> tuple[_Address, _Connection, http.client.HTTPResponse]:
        path = "/v1/" + "/".join(quote(each, safe="") for each in segments)
        if query:
            path += "?" + urlencode(query)
        deadline = time.monotonic() + timeout_s
        waits = iter(_BACKOFF)
        last_error: Exception = OSError("no request was sent")
        rejected: QueryFailed | None = None
        if not self._addresses:
            last_error = self._find_workers(deadline) or last_error
        while True:
            addresses = self._addresses
            for others, address in zip(range(len(addresses) - 1, -1, -1), addresses, strict=True):
                try:
                    connection, answer = self._ask(address, path, max(deadline - time.monotonic(), 0.0), others)
                except _CONNECTION_ERRORS as error:
                    last_error = error
                    continue
                if answer.status == 200:
                    return address, connection, answer
                failed = self._rejection(address, connection, answer)
                if not _another_may_answer(failed) or time.monotonic() >= deadline:
                    raise failed
                rejected = failed
            _raise_for_registry(rejected)
            pause = next(waits)
            if time.monotonic() + pause >= deadline:
                break
            time.sleep(pause)
            last_error = self._find_workers(deadline) or last_error
        if rejected is not None:
            raise rejected
        raise self._no_answer(last_error) from last_error

    def _ask(
        self, address: _Address, path: str, left_s: float, others: int
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        """Send a request to a worker. One that is silent leaves time for the others, and is asked last from then on."""
        try:
            return self._send(address, path, left_s + _GRACE_S, others)
        except TimeoutError:
            self._addresses = [*(each for each in self._addresses if each != address), address]
            raise

    def _no_answer(self, error: Exception) -> QueryFailed:
        if not self._addresses:
            return QueryFailed(FailureReason.NOT_PRESENT, str(error))
        tried = ", ".join(f"{each.host}:{each.port}" for each in self._addresses)
        return QueryFailed(
            FailureReason.NOT_PRESENT,
            f"no worker answers at {tried} ({error}): check that workers run there, and that their 'http.host' "
            "is reachable from here.",
        )

    def _find_workers(self, deadline: float) -> MillpondError | None:
        """Replace the addresses by those that are found now; return the error if none are."""
        if self._find is None:
            return None
        try:
            self._addresses = self._parsed(self._find(max(deadline - time.monotonic(), _MIN_FIND_S)))
        except MillpondError as error:
            return error
        return None

    def _send(
        self, address: _Address, path: str, timeout_s: float, others: int
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        while True:
            with self._lock:
                kept = self._idle[address].pop() if self._idle[address] else None
            connection = kept or self._connection(address)
            try:
                if connection.sock is None:
                    connection.timeout = timeout_s / (others + 1)
                    connection.connect()
                connection.sock.settimeout(timeout_s)
                connection.request("GET", path, headers=self._headers())
                if others:
                    self._await_answer(address, connection, timeout_s)
                return connection, connection.getresponse()
            except _CONNECTION_ERRORS as error:
                connection.close()
                if kept is None or isinstance(error, TimeoutError):
                    raise
                # The worker closed the idle connection: retry with a new one.

    def _await_answer(self, address: _Address, connection: _Connection, timeout_s: float) -> None:
        """Wait until an answer begins, as long as the worker is alive.

        A worker may wait for the next owner of a task. One that was stopped accepts connections and is silent, which
        its probe tells.

        Raises:
            TimeoutError: the worker is silent, or takes longer than it may.
        """
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as waiting:
            waiting.register(connection.sock, selectors.EVENT_READ)
            while not waiting.select(_SILENT_S):
                if time.monotonic() >= deadline or not self._lives(address):
                    raise TimeoutError("timed out")

    def _lives(self, address: _Address) -> bool:
        probe = self._connection(address)
        probe.timeout = _SILENT_S
        try:
            probe.request("GET", _PROBE)
            probe.getresponse()
        except _CONNECTION_ERRORS:
            return False
        else:
            return True
        finally:
            probe.close()

    def _connection(self, address: _Address) -> _Connection:
        if self._connect is not None:
            return _Led(address, self._connect, self._tls)
        if not address.secure:
            return _Connection(address.host, address.port)
        return http.client.HTTPSConnection(address.host, address.port, context=self._tls)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json, application/x-ndjson"}
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {self._tokens.own}"
        return headers

    def _rejection(self, address: _Address, connection: _Connection, answer: http.client.HTTPResponse) -> QueryFailed:
        try:
            body = answer.read()
            self._release(address, connection)
            return QueryFailed.of(_errors.decode(body).error)
        except _CONNECTION_ERRORS as error:
            connection.close()
            return _cut_off(address, error)
        except msgspec.DecodeError:
            where = f"{address.host}:{address.port}"
            return QueryFailed(
                FailureReason.NOT_PRESENT,
                f"{where} answered with status {answer.status}, but not as a millpond worker does: check the URL.",
            )

    def _release(self, address: _Address, connection: _Connection) -> None:
        with self._lock:
            kept = self._idle[address]
            if connection.sock is not None and len(kept) < _MAX_IDLE_CONNECTIONS:
                kept.append(connection)
                return
        connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            connections = [each for kept in self._idle.values() for each in kept]
            for kept in self._idle.values():
                kept.clear()
        for connection in connections:
            connection.close()


class _Led(_Connection):
    """A connection by another way than the network's."""

    def __init__(self, address: _Address, connect: Connect, tls: ssl.SSLContext | None) -> None:
        super().__init__(address.host, address.port)
        self._connect = connect
        self._tls = tls if address.secure else None

    def connect(self) -> None:
        sock = self._connect(self.host, self.port)
        sock.settimeout(self.timeout)
        self.sock = sock  # closed with this connection, also if TLS fails
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(sock, server_hostname=self.host)


def _another_may_answer(failed: QueryFailed) -> bool:
    """Return whether the other workers may answer: this one has just started, or it does not know a schema yet."""
    starting = failed.reason is FailureReason.NOT_ACTIVE and not failed.partitions
    return starting or failed.reason is FailureReason.REGISTRY_UNAVAILABLE


def _raise_for_registry(rejected: QueryFailed | None) -> None:
    """Raise the failure of the last worker if it has no schema: that of a worker that starts soon passes."""
    if rejected is not None and rejected.reason is FailureReason.REGISTRY_UNAVAILABLE:
        raise rejected


def _cut_off(address: _Address, error: Exception) -> QueryFailed:
    return QueryFailed(
        FailureReason.NOT_PRESENT, f"the answer of {address.host}:{address.port} was cut off ({error}): retry."
    )
