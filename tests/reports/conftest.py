"""Fixtures of other folders."""

from __future__ import annotations

from tests.serdes.conftest import registry, server  # noqa: F401  (fixtures)
