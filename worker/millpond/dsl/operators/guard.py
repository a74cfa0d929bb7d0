"""Which errors are never user code's, and so never go to the processing handler."""

from __future__ import annotations

from millpond.errors import BrokerError, OwnershipError, ProcessingFailed, StateError

__all__ = ("FATAL",)

#: Re-raised wherever an operator guards user code together with its serialisation or its store.
FATAL = (ProcessingFailed, StateError, OwnershipError, BrokerError)
