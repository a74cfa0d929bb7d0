"""All cases of java/VersionedTables.java, built with millpond."""

from __future__ import annotations

import tests.oracle.versioned.grace
import tests.oracle.versioned.tables  # noqa: F401 - each registers its cases
from tests.oracle.versioned.running import CASES

__all__ = ("CASES",)
