"""What ends a release."""

from __future__ import annotations

from millpond.errors import MillpondError

__all__ = ("ReleaseFailed",)


class ReleaseFailed(MillpondError):
    """A part of the release cannot be built, differs when it is built again, or does not work."""
