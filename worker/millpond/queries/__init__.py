"""Interactive queries: asking a running application for what its stores hold, over HTTP."""

from __future__ import annotations

from .failures import FailureReason, QueryFailed

__all__ = ("FailureReason", "QueryFailed")
