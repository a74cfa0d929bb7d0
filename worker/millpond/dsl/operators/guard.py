"""Errors that never come from user code, and so never go to the processing exception handler."""

from __future__ import annotations

from millpond.errors import BrokerError, OwnershipError, ProcessingFailed, StateError

__all__ = ("FATAL",)

FATAL = (ProcessingFailed, StateError, OwnershipError, BrokerError)
"""Re-raised where user code is guarded together with serdes or a store."""
