"""The topologies of java/Topologies.java, built with millpond: one case here is one golden file there."""

from __future__ import annotations

from tests.oracle.topologies import aggregations, by_hand, joins, streams, tables, windows  # noqa: F401 - each registers its cases
from tests.oracle.topologies.cases import CASES

__all__ = ("CASES",)
