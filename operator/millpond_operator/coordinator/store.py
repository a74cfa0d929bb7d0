"""Where the last assignment is written down before workers are told."""

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
    """Keeps the last assignment of one application."""

    async def load(self) -> View | None:
        """What was saved last; None when nothing was.

        Raises:
            StoreError: it cannot be read.
        """

    async def save(self, view: View) -> None:
        """Keep this one; when it returns, the assignment outlives the process.

        Raises:
            StoreError: it could not be kept.
        """


class FileStore:
    """A JSON file, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> View | None:
        """What was saved last; None when there is no file.

        Raises:
            StoreError: it cannot be read, or is none.
        """
        return await asyncio.to_thread(self._load)

    async def save(self, view: View) -> None:
        """Write the file anew.

        Raises:
            StoreError: it cannot be written.
        """
        await asyncio.to_thread(self._save, encode(view))

    def _load(self) -> View | None:
        try:
            return _views.decode(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError(
                f"The last assignment in '{self._path}' cannot be read ({error}): move the file away and start with a "
                "term greater than any before, and the coordinator learns everything from the workers."
            ) from error

    def _save(self, raw: bytes) -> None:
        aside = self._path.with_name(f".{self._path.name}.new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Not forced to the disk, which may take seconds while tasks wait: after a loss of power the workers are asked,
            # and whose tasks are is in Kafka.
            aside.write_bytes(raw)
            aside.replace(self._path)
        except OSError as error:
            raise StoreError(f"The assignment cannot be written to '{self._path}': {error}.") from error
