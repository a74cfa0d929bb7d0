"""All cases: the modules imported here register them."""

from __future__ import annotations

from tests.oracle.table_joins import foreign_key, primary_key  # noqa: F401 - they register their cases
from tests.oracle.table_joins.running import CASES

__all__ = ("CASES",)
