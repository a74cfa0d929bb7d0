"""The store of the last assignment, which is written before workers get the assignment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import msgspec

from millpond.errors import MillpondError
from millpond.protocol import View, encode

__all__ = ("AssignmentStore", "FileStore", "StoreError")

_views = msgspec.json.Decoder(View)


class StoreError(MillpondError):
    """The last assignment cannot be read or written."""


class AssignmentStore(Protocol):
    """Stores the last assignment of one application."""

    async def load(self) -> View | None:
        """Return the last saved assignment; None when there is none.

        Raises:
            StoreError: it cannot be read.
        """

    async def save(self, view: View) -> None:
        """Save the assignment, so that it outlives the process.

        Raises:
            StoreError: it cannot be written.
        """


class FileStore:
    """A JSON file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> View | None:
        """Return the last saved assignment; None when there is no file.

        Raises:
            StoreError: the file cannot be read, or is not valid.
        """
        return await asyncio.to_thread(self._load)

    async def save(self, view: View) -> None:
        """Replace the file.

        Raises:
            StoreError: the file cannot be written.
        """
        await asyncio.to_thread(self._save, encode(view))

    def _load(self) -> View | None:
        try:
            return _views.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"Cannot read the last assignment in '{self._path}' ({error}): move the file away and start with a "
                "greater term than before. The coordinator then learns everything from the workers."
            ) from error

    def _save(self, raw: bytes) -> None:
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # No fsync, which may take seconds while tasks wait: after a power loss the workers report what they hold,
            # and Kafka has the owners.
            temporary.write_bytes(raw)
            temporary.replace(self._path)
        except OSError as error:
            raise StoreError(
                f"Cannot write the assignment to '{self._path}': {error}. Make the directory writable, or use another."
            ) from error
