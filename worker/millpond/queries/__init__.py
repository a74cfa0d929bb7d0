"""Interactive queries: read the state stores of a running application over HTTP."""

from __future__ import annotations

from .client import Answer, Client, Row, Rows, Store, VersionRow, WindowRow
from .failures import FailureReason, QueryFailed

__all__ = ("Answer", "Client", "FailureReason", "QueryFailed", "Row", "Rows", "Store", "VersionRow", "WindowRow")
