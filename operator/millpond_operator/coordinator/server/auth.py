"""Bearer tokens: the identity and the rights of each."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from millpond.errors import ConfigError

__all__ = ("Authenticator", "Identity", "TokenFile")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """The rights of a token."""

    worker: str | None = None
    """The worker that may use it; None for none."""
    application: str | None = None
    """That worker's application; None for any."""
    namespace: str | None = None
    """The namespace of the applications that it is valid for; None for any."""
    admin: bool = False
    """Whether it permits to drain workers and to declare them dead."""

    def speaks_for(self, application: str, worker: str, namespace: str = "") -> bool:
        """Return whether heartbeats of this worker may use the token."""
        return self.worker == worker and self.application in {None, application} and self.reaches(namespace)

    def reaches(self, namespace: str) -> bool:
        """Return whether the token is valid in this namespace."""
        return self.namespace in {None, namespace}


class Authenticator(Protocol):
    """The mapping of tokens to identities."""

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Return the identity of a token.

        Args:
            token: the part behind `Authorization: Bearer`; None when there is none.
            peer: the address of the sender.

        Returns:
            None when the token is invalid.

        Raises:
            MillpondError: the token cannot be verified at the moment; the sender retries. Remember recent results:
                workers that are rejected for longer than their session count as dead.
        """


class TokenFile:
    """Tokens from a file, which is read again when it changes.

    A line has a token and its rights, separated by blanks: `worker=w0`, optionally with `application=delays` and
    `namespace=shop`, or `admin`. Empty lines and lines that start with `#` are skipped.

    Raises:
        ConfigError: the file cannot be read, or a line is invalid. The message has the number of the line, never its
            token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._file_stamp()
        self._identities = self._read()

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Return the identity of a token; None when it is not in the file."""
        self._reload()
        if not token:
            return None
        digest = _digest(token)
        # Looked up by its hash, so that the time reveals nothing about the known tokens.
        found = self._identities.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]

    def _reload(self) -> None:
        try:
            stamp = self._file_stamp()
            if stamp != self._stamp:
                self._identities = self._read()
                self._stamp = stamp
        except ConfigError as error:
            # The file may be half-written, or missing for a moment while it is replaced.
            log.warning("token file: cannot be read again; the tokens that were read before stay valid: %s", error)
            self._stamp = (0, 0, 0)

    def _file_stamp(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise ConfigError(
                f"Cannot read the token file '{self._path}': {error.strerror}. Correct its path."
            ) from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> Mapping[bytes, tuple[bytes, Identity]]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"Cannot read the token file '{self._path}': {error}. Make it a readable file in UTF-8."
            ) from error
        identities = {}
        for number, line in enumerate(lines, start=1):
            if line.strip() and not line.lstrip().startswith("#"):
                token, *rights = line.split()
                digest = _digest(token)
                identities[digest] = (digest, self._identity(number, rights))
        return identities

    def _identity(self, number: int, rights: list[str]) -> Identity:
        given: dict[str, str] = {}
        for right in rights:
            name, _, value = right.partition("=")
            given[name] = value
        admin = given.pop("admin", None) is not None
        worker, application, namespace = (given.pop(name, None) for name in ("worker", "application", "namespace"))
        if given or not (admin or worker):
            raise ConfigError(
                f"Line {number} of the token file '{self._path}' is invalid: write a token, then worker=<id> "
                "(optionally with application=<id> and namespace=<name>) or admin."
            )
        return Identity(worker, application, namespace, admin)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()  # headers may hold any bytes
