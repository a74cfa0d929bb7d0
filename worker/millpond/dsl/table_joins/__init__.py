"""Joins of two tables: by the key of both, and by a foreign key."""

from __future__ import annotations

from .operators import TableTableJoins
from .options import TableJoined

__all__ = ("TableJoined", "TableTableJoins")
