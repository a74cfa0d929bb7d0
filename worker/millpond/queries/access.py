"""Who may ask, how much at once, and over what: the `query.*` settings.

Tokens are lines of a file. Whoever shows one of them may ask; the first one is what this worker shows to others. So a
token is changed in three steps: add the new one below, move it up, take the old one away.
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

__all__ = ("Access", "Gate", "Tokens", "client_context", "keep_certificates", "server_context")

log = logging.getLogger(__name__)

#: Reads for other workers beside the queries of clients. They wait for nobody, so queries cannot wait for each other.
_READS_PER_QUERY = 4
_LOOK_AGAIN_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Access:
    """The settings. Files are read again when they change."""

    token_file: Path | None = None
    """Tokens, one per line; None to let everybody ask."""
    certificate_file: Path | None = None
    """Certificate chain of this worker, PEM; None for no TLS."""
    key_file: Path | None = None
    """Its private key, PEM; None when the key is in the same file."""
    ca_file: Path | None = None
    """Certificates that may have signed those of other workers, PEM; None for those of the system."""
    most: int = 64
    """Queries that are answered at the same time."""
    longest_s: float = 600.0
    """For one answer, however long it is."""


class Tokens:
    """The tokens in a file. Safe for several threads.

    Raises:
        ConfigError: the file cannot be read, or has no token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: tuple[bytes, ...] = ()
        self._read(self._stamp_of())

    @property
    def own(self) -> str:
        """What this worker shows to others."""
        self._read_again()
        return self._tokens[0].decode()

    def accept(self, token: str) -> bool:
        """Whether a token is one of them, in a time that tells nothing of how much of it is right."""
        self._read_again()
        given = token.encode("utf-8", "surrogateescape")
        # All of them, so that the time does not say which one it was.
        return sum(hmac.compare_digest(each, given) for each in self._tokens) > 0

    def _read_again(self) -> None:
        try:
            stamp = self._stamp_of()
            if stamp != self._stamp:
                self._read(stamp)
        except ConfigError as error:  # while it is replaced
            log.warning("%s the tokens read before stay valid", error)
            self._stamp = None

    def _stamp_of(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self, stamp: tuple[int, int, int]) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error
        if not lines:
            raise ConfigError(f"the token file '{self._path}' is empty: write a token into it, one per line.")
        self._tokens, self._stamp = tuple(line.encode() for line in lines), stamp

    def _unreadable(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"the token file '{self._path}' cannot be read ({error}): set 'query.token.file' to another."
        )


class Gate:
    """Lets queries in: those with a token, and only so many at once."""

    def __init__(self, access: Access) -> None:
        """Raises:
        ConfigError: the token file cannot be read.
        """
        self.access = access
        self.tokens = None if access.token_file is None else Tokens(access.token_file)
        self._free = {False: access.most, True: access.most * _READS_PER_QUERY}

    def check(self, request: web.Request) -> None:
        """Refuse who shows no valid token.

        Raises:
            QueryFailed: the request has none.
        """
        if self.tokens is None:
            return
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.tokens.accept(token.strip()):
            raise QueryFailed(
                FailureReason.UNAUTHORIZED,
                "this worker wants a valid token (Authorization: Bearer ...): give the one of 'query.token.file'.",
            )

    @contextmanager
    def place(self, *, peer: bool) -> Iterator[None]:
        """Take part in answering; `peer` when another worker asks.

        Raises:
            QueryFailed: too many are answered already.
        """
        if not self._free[peer]:
            raise QueryFailed(
                FailureReason.BUSY,
                f"this worker answers {self.access.most} queries already: ask again later, or raise "
                "'query.max.concurrent'.",
            )
        self._free[peer] -= 1
        try:
            yield
        finally:
            self._free[peer] += 1

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Give an answer up that takes too long; raises TimeoutError."""
        async with asyncio.timeout(self.access.longest_s):
            yield


def server_context(access: Access) -> ssl.SSLContext | None:
    """TLS of this worker; None without a certificate.

    Raises:
        ConfigError: the certificate or its key cannot be used.
    """
    if access.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(context, access)
    return context


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """TLS towards workers.

    Raises:
        ConfigError: the certificates cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificates in '{ca_file}' cannot be read ({error}): give a PEM file.") from error


async def keep_certificates(access: Access, server: ssl.SSLContext | None, client: ssl.SSLContext) -> None:
    """Read certificates again when they have changed. Ends when it is cancelled."""
    files = [each for each in (access.certificate_file, access.key_file, access.ca_file) if each is not None]
    known = _stamps(files)
    while True:
        await asyncio.sleep(_LOOK_AGAIN_S)
        if (found := _stamps(files)) == known:
            continue
        try:
            if server is not None:
                _load(server, access)
            if access.ca_file is not None:
                client.load_verify_locations(cafile=str(access.ca_file))
            known = found
        except (ConfigError, OSError, ssl.SSLError) as error:
            log.warning("certificates for queries changed and cannot be read (%s); the old ones stay in use", error)


def _load(context: ssl.SSLContext, access: Access) -> None:
    assert access.certificate_file is not None
    try:
        context.load_cert_chain(access.certificate_file, access.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"the certificate '{access.certificate_file}' cannot be used ({error}): set "
            "'query.ssl.certificate.location' and 'query.ssl.key.location' to PEM files that belong together."
        ) from error


def _stamps(files: list[Path]) -> list[float]:
    stamps = []
    for each in files:
        with suppress(OSError):
            stamps.append(each.stat().st_mtime)
    return stamps
