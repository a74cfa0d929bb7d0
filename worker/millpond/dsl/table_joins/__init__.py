"""Joins of two tables: by the key of both, and by a foreign key."""

from __future__ import annotations

from .operators import TableTableJoins

__all__ = ("TableTableJoins",)
