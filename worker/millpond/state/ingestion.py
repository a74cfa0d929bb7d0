"""Ingestion: replacing the rows of a store partition by those of SST files, one file at a time.

    begin: rows and checkpoint are deleted ──> one file after another ──> finish: the checkpoint is written

Other work can continue between two files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from .provenance import Provenance

__all__ = ("Checkpoint", "Ingestion")


class Checkpoint(NamedTuple):
    """The checkpoint of a store partition, or of global rows in one partition of their topic."""

    offset: int
    """The changelog offset to continue from."""
    metadata: bytes
    """The store's `metadata()` at that offset."""
    provenance: Provenance


class Ingestion(Protocol):
    """The ingestion of one store partition's files into a backend, which has deleted the old rows.

    Nothing else may read or write the partition until `finish` or `abandon`.
    """

    def add(self, path: Path) -> bool:
        """Ingest rows of an SST file; return whether all are ingested. If not, call it again with the same file.

        A call takes some milliseconds. When all rows are ingested, the file no longer exists. Its rows must be of this
        partition, which is not checked.

        Raises:
            StateError: the file cannot be read.
        """

    def finish(self, checkpoints: Mapping[int, Checkpoint]) -> None:
        """Write the checkpoints, which make the rows valid.

        Args:
            checkpoints: the checkpoints by partition of the changelog: for a global store, of all its topic's
                partitions.

        Raises:
            StateError: the disk is full or fails.
        """

    def abandon(self) -> None:
        """Delete the rows ingested so far."""
