"""Fixtures of other folders."""

from __future__ import annotations

from tests.queries.conftest import start  # noqa: F401  (fixture)
from tests.serdes.conftest import registry, server  # noqa: F401  (fixtures)
