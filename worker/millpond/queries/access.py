"""Access to queries: bearer tokens, limits and TLS, from the `query.*` settings.

The token file has one token per line. A request is accepted with any of them; this worker sends the first one to other
workers. So a token is replaced in three steps: add the new one at the end, move it to the top, remove the old one.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import ConfigError

from .failures import FailureReason, QueryFailed

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ("Access", "Gate", "Tokens", "client_context", "reload_certificates", "server_context")

log: logging.Logger = logging.getLogger(__name__)

#: Reads for other workers have a limit of their own, a multiple of that for queries. They never wait for other workers,
#: so queries cannot deadlock on each other.
_PEER_READS_PER_QUERY = 4
_CERTIFICATE_CHECK_INTERVAL_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Access:
    """The access settings. Files are reread when they change."""

    token_file: Path | None = None
    """Tokens, one per line; None to accept queries without a token."""
    certificate_file: Path | None = None
    """Certificate chain of this worker, PEM; None for no TLS."""
    key_file: Path | None = None
    """Private key of that certificate, PEM; None when the key is in the certificate file."""
    ca_file: Path | None = None
    """Certificate authorities to trust for other workers, PEM; None for those of the system."""
    max_concurrent: int = 64
    """Most queries answered at the same time."""
    max_duration_s: float = 600.0
    """Longest time that one answer may take, in seconds."""


class Tokens:
    """The tokens in a file. Thread-safe.

    Raises:
        ConfigError: the file cannot be read, or has no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._tokens: tuple[bytes, ...] = ()
        self._read(self._file_version())

    @property
    def own(self) -> str:
        """The token that this worker sends to other workers."""
        self._reread_if_changed()
        return self._tokens[0].decode()

    def accept(self, token: str) -> bool:
        """Return whether a token is valid, in constant time."""
        self._reread_if_changed()
        candidate = token.encode("utf-8", "surrogateescape")
        # Compare with all of them, so that the time does not reveal which one matched.
        return sum(hmac.compare_digest(each, candidate) for each in self._tokens) > 0

    def _reread_if_changed(self) -> None:
        try:
            version = self._file_version()
            if version != self._version:
                self._read(version)
        except ConfigError as error:  # the file is being replaced
            log.warning("query tokens: %s The previous tokens stay valid.", error)
            self._version = None

    def _file_version(self) -> tuple[int, int, int]:
        try:
            status = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self, version: tuple[int, int, int]) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error
        if not lines:
            raise ConfigError(f"the token file '{self._path}' is empty: add at least one token, one per line.")
        self._tokens, self._version = tuple(line.encode() for line in lines), version

    def _unreadable(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"cannot read the token file '{self._path}' ({error}): set 'query.token.file' to a readable file."
        )


class Gate:
    """The check of each request: its token, the number of concurrent queries, and the time of an answer."""

    def __init__(self, access: Access) -> None:
        """Read the token file.

        Raises:
            ConfigError: the token file cannot be read.
        """
        self.access = access
        self.tokens: Tokens | None = None if access.token_file is None else Tokens(access.token_file)
        self._free = {False: access.max_concurrent, True: access.max_concurrent * _PEER_READS_PER_QUERY}

    def check(self, request: web.Request) -> None:
        """Reject a request without a valid token.

        Raises:
            QueryFailed: the request has no valid token.
        """
        if self.tokens is None:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.tokens.accept(token.strip()):
            raise QueryFailed(
                FailureReason.UNAUTHORIZED,
                "the request has no valid token: send one from 'query.token.file' (Authorization: Bearer ...).",
            )

    @contextmanager
    def slot(self, *, peer: bool) -> Iterator[None]:
        """Occupy one of the places for concurrent queries, or for reads by other workers (`peer`), during the block.

        Raises:
            QueryFailed: all places are taken.
        """
        if not self._free[peer]:
            raise QueryFailed(
                FailureReason.BUSY,
                f"this worker is already answering {self.access.max_concurrent} queries: retry later, or raise "
                "'query.max.concurrent'.",
            )
        self._free[peer] -= 1
        try:
            yield
        finally:
            self._free[peer] += 1

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Raise TimeoutError in the block if the block takes longer than `max_duration_s`."""
        async with asyncio.timeout(self.access.max_duration_s):
            yield


def server_context(access: Access) -> ssl.SSLContext | None:
    """Return the TLS context of this worker's server; None without a certificate.

    Raises:
        ConfigError: the certificate or its key cannot be used.
    """
    if access.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, access)
    return context


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return the TLS context for requests to workers.

    Raises:
        ConfigError: the certificates cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot read the certificates in '{ca_file}' ({error}): use a PEM file.") from error


async def reload_certificates(access: Access, server: ssl.SSLContext | None, client: ssl.SSLContext) -> None:
    """Reload certificates when their files change, until cancelled."""
    files = [each for each in (access.certificate_file, access.key_file, access.ca_file) if each is not None]
    loaded = _modification_times(files)
    while True:
        await asyncio.sleep(_CERTIFICATE_CHECK_INTERVAL_S)
        if (current := _modification_times(files)) == loaded:
            continue
        try:
            if server is not None:
                _load(server, access)
            if access.ca_file is not None:
                client.load_verify_locations(cafile=str(access.ca_file))
            loaded = current
        except (ConfigError, OSError, ssl.SSLError) as error:
            log.warning("query certificates: changed, but cannot be read (%s); keeping the previous ones", error)


def _load(context: ssl.SSLContext, access: Access) -> None:
    assert access.certificate_file is not None
    try:
        context.load_cert_chain(access.certificate_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use the certificate '{access.certificate_file}' ({error}): set "
            "'query.ssl.certificate.location' and 'query.ssl.key.location' to PEM files that belong together."
        ) from error


def _modification_times(files: list[Path]) -> list[float]:
    times = []
    for each in files:
        with suppress(OSError):
            times.append(each.stat().st_mtime)
    return times
