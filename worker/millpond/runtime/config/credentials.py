"""Credentials from a directory in which each file is named like a client property and contains its value.

A Secret that is mounted into a container has this form. No message shows any content of a file.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from millpond.errors import ConfigError
from millpond.protocol import clock

__all__ = ("CredentialFiles", "files_of", "read_credentials")

#: Files that properties such as `ssl.ca.location` refer to: not values themselves.
_MATERIAL = (".cer", ".crt", ".jks", ".key", ".keytab", ".p12", ".pem")
_LOCATIONS = frozenset({"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"})
#: A kubelet replaces mounted files about once a minute.
_CHECK_INTERVAL_S = 10.0


def read_credentials(directory: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield the properties in a directory: name, value, and whether other properties may refer to the file.

    Hidden entries and directories are skipped. One newline at the end is not part of the value.

    Raises:
        ConfigError: the directory or one of its files cannot be read.
    """
    try:
        files = sorted(each for each in directory.iterdir() if not each.name.startswith(".") and each.is_file())
    except OSError as error:
        raise ConfigError(
            f"the directory of credentials '{directory}' cannot be read: {error.strerror or error}. Correct "
            "'credentials.dir', or mount the credentials there."
        ) from error
    for file in files:
        try:
            text = file.read_bytes().decode()
        except OSError as error:
            raise ConfigError(f"the credentials in '{file}' cannot be read: {error.strerror or error}.") from error
        except UnicodeDecodeError:
            if file.name.endswith(_MATERIAL):
                continue
            raise ConfigError(f"the credentials in '{file}' cannot be read: they are not UTF-8.") from None
        value = text.removesuffix("\n")
        yield file.name, value.removesuffix("\r") if value != text else value, file.name.endswith(_MATERIAL)


class CredentialFiles:
    """The check for changes of files with credentials, since Kafka clients read them only once.

    It keeps a digest of their content, under a key that never leaves the process.

    Args:
        directory: a directory for `read_credentials`, or None.
        files: further files.
        monotonic: returns the seconds of a clock that never goes back.
    """

    def __init__(
        self, directory: Path | None, files: Iterable[Path] = (), monotonic: Callable[[], float] = clock.monotonic
    ) -> None:
        self._directory = directory
        self._files = frozenset(files)
        self._monotonic = monotonic
        self._key = secrets.token_bytes(32)
        self._initial = self._digest()
        self._checked_at = monotonic()
        self._changed = False

    def changed(self) -> bool:
        """Return whether the files differ from those at the start. They are read every ten seconds at most."""
        now = self._monotonic()
        if now - self._checked_at >= _CHECK_INTERVAL_S:
            self._checked_at = now
            digest = self._digest()
            # Files that cannot be read are being replaced: the next check decides.
            self._changed = self._changed if digest is None else digest != self._initial
        return self._changed

    def _digest(self) -> bytes | None:
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        try:
            inside = () if self._directory is None else self._directory.iterdir()
            visible = {each for each in inside if not each.name.startswith(".") and each.is_file()}
            for file in sorted(visible | self._files):
                digest.update(hashlib.sha256(str(file).encode()).digest() + hashlib.sha256(file.read_bytes()).digest())
        except OSError:
            return None
        return digest.digest()


def files_of(settings: Iterable[Mapping[str, object]]) -> frozenset[Path]:
    """Return the files that client properties such as `ssl.ca.location` name."""
    return frozenset(
        Path(str(value))
        for each in settings
        for name, value in each.items()
        if name in _LOCATIONS and Path(str(value)).is_file()
    )
