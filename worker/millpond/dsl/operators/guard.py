"""The errors that user code cannot raise, and that the processing exception handler therefore never gets."""

from __future__ import annotations

from millpond.errors import BrokerError, OwnershipError, ProcessingFailed, StateError

__all__ = ("FATAL",)

FATAL = (ProcessingFailed, StateError, OwnershipError, BrokerError)
"""Re-raised where user code is guarded together with serdes or a store."""
