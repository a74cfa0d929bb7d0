"""The topologies of java/Topologies.java, built with millpond: one case here is one golden file there."""

from __future__ import annotations

from tests.oracle.topologies import (  # noqa: F401 - each registers its cases
    aggregations,
    by_hand,
    joins,
    stream_joins,
    streams,
    tables,
    windows,
)
from tests.oracle.topologies.cases import CASES

__all__ = ("CASES",)
