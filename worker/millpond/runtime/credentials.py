"""Credentials from files: a directory in which each file is named by a client property and holds its value.

That is how a Secret looks that is mounted into a container. Nothing of a file's content is ever shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from millpond.errors import ConfigError

__all__ = ("read_credentials",)

#: Files that properties such as `ssl.ca.location` point at, rather than values.
_MATERIAL = (".cer", ".crt", ".jks", ".key", ".keytab", ".p12", ".pem")


def read_credentials(directory: Path) -> Iterator[tuple[str, str, bool]]:
    """The properties in a directory: name, value, and whether the name may be that of a file for others to point at.

    Hidden entries and directories are passed over. One newline at a value's end is not part of it.

    Raises:
        ConfigError: the directory or a file of it cannot be read.
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
