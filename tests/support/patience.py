"""How much longer than on a quiet machine tests may take before they count as hung."""

from __future__ import annotations

__all__ = ("PATIENCE",)

PATIENCE = 4
"""The factor of all time limits that guard against a hang: those of whole tests, and those of waits on a cluster.

Limits are written for a quiet machine. A machine that is so many times slower fails no test by them; how long something
takes is a figure.
"""
