"""The application whose state is restored: the newest value of each key, a string of 100 bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import millpond as mp

__all__ = ("APPLICATION", "CHANGELOG", "INPUT", "PARTITIONS", "config", "topology")

APPLICATION: Final = "bench-bootstrap"
INPUT: Final = "bench-bootstrap-input"
PARTITIONS: Final = 8
_STORE: Final = "latest"
CHANGELOG: Final = f"{APPLICATION}-{_STORE}-changelog"
"""The store's name, which is the same on the Java side."""


def topology() -> mp.Topology:
    """Return the topology: a table of the newest value of each key."""
    builder = mp.StreamsBuilder()
    records = builder.stream(INPUT, key=mp.String, value=mp.String)
    records.group_by_key().reduce(lambda _, new: new, store=_STORE)
    return builder.build()


def config(bootstrap: str, state: Path | str, snapshots: Path | str | None = None) -> mp.Config:
    """Return the worker's settings.

    Args:
        bootstrap: the broker.
        state: an empty directory.
        snapshots: the place of snapshots; None to replay.
    """
    given = {
        "application.id": APPLICATION,
        "bootstrap.servers": bootstrap,
        "state.dir": str(state),
        "processing.guarantee": "exactly_once",
    }
    return mp.Config.of(given | ({} if snapshots is None else {"bootstrap.location": str(snapshots)}))
