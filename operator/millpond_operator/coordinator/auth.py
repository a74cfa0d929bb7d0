"""Who speaks: bearer tokens, and what they entitle to."""

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
    """What a token stands for."""

    worker: str | None = None
    """The worker it may speak for; None for none."""
    application: str | None = None
    """The application that worker belongs to; None for any."""
    namespace: str | None = None
    """The namespace of the applications it is good for; None for any."""
    admin: bool = False
    """Whether it may drain workers and declare them gone."""

    def speaks_for(self, application: str, worker: str, namespace: str = "") -> bool:
        """Whether heartbeats of this worker may come with it."""
        return self.worker == worker and self.application in {None, application} and self.reaches(namespace)

    def reaches(self, namespace: str) -> bool:
        """Whether it is good for anything in this namespace."""
        return self.namespace in {None, namespace}


class Authenticator(Protocol):
    """Turns a token into an identity."""

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Whose token it is.

        Args:
            token: what came behind `Authorization: Bearer`; None when nothing came.
            peer: the address that it came from.

        Returns:
            None when it is nobody's.

        Raises:
            MillpondError: that cannot be found out at the moment; whoever asks will ask again. What was found out
                lately had better be remembered: workers that are not let in for longer than their session are gone.
        """


class TokenFile:
    """Tokens from a file, which is read again when it changes.

    A line is a token and what it is for, separated by blanks: `worker=w0`, with `application=delays` and
    `namespace=shop` where they matter, or `admin`. Empty lines and lines that start with `#` say nothing.

    Raises:
        ConfigError: the file cannot be read, or a line of it cannot. The message names the line and never its token.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = self._stamp_of()
        self._identities = self._read()

    async def __call__(self, token: str | None, peer: str = "") -> Identity | None:
        """Whose token it is; None when it is nobody's."""
        self._read_again()
        if not token:
            return None
        digest = _digest(token)
        # Looked up by its hash: how long that takes tells nothing about the tokens that there are.
        found = self._identities.get(digest)
        if found is None or not hmac.compare_digest(found[0], digest):
            return None
        return found[1]

    def _read_again(self) -> None:
        try:
            stamp = self._stamp_of()
            if stamp != self._stamp:
                self._identities = self._read()
                self._stamp = stamp
        except ConfigError as error:
            # Half-written, or away for a moment while it is replaced: the tokens that were good stay good.
            log.warning("%s The tokens read before stay valid.", error)
            self._stamp = (0, 0, 0)

    def _stamp_of(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError as error:
            raise ConfigError(f"The token file '{self._path}' cannot be read: {error.strerror}.") from error
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _read(self) -> Mapping[bytes, tuple[bytes, Identity]]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The token file '{self._path}' cannot be read: {error}.") from error
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
                f"Line {number} of the token file '{self._path}' is none: write a token and then worker=<id>, "
                "with application=<id> if it matters, or admin."
            )
        return Identity(worker, application, namespace, admin)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()  # headers may hold any bytes
