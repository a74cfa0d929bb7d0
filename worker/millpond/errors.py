"""What millpond raises: one root, one class per cause a caller may want to tell apart."""

from __future__ import annotations

__all__ = (
    "BrokerError",
    "ConfigError",
    "MillpondError",
    "OwnershipError",
    "ProcessingFailed",
    "SerializationError",
    "SnapshotError",
    "StateCorrupted",
    "StateDirectoryLocked",
    "StateError",
    "TopicChanged",
    "TopicError",
    "TopologyError",
)


class MillpondError(Exception):
    """Root of everything millpond raises on purpose. The message is one sentence: the cause, then the cure."""


class ConfigError(MillpondError):
    """A setting is unknown, misspelled, missing or has a value that cannot be used."""


class TopologyError(MillpondError):
    """A topology cannot be built, or its parts contradict each other."""


class SerializationError(MillpondError):
    """Bytes that cannot become a value, or a value that cannot become bytes."""


class StateError(MillpondError):
    """Local state cannot be read or written."""


class StateDirectoryLocked(StateError):
    """Another process holds the state directory."""


class StateCorrupted(StateError):
    """The local database cannot be trusted; the store has to be rebuilt from its changelog.

    Attributes:
        store: the name of the store, or None when the whole database is concerned.
    """

    def __init__(self, message: str, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class SnapshotError(MillpondError):
    """A snapshot, or the location that it is in, cannot be read, written or used."""


class BrokerError(MillpondError):
    """The Kafka cluster cannot be reached, or it refused a request."""


class TopicError(BrokerError):
    """A topic is missing or has the wrong shape."""


class TopicChanged(TopicError):
    """A topic has partitions that the application does not read, because it began with fewer."""


class OwnershipError(MillpondError):
    """A task belongs to another worker, or was taken over by one."""


class ProcessingFailed(MillpondError):
    """A record could not be processed and the processing handler said FAIL (KIP-1033).

    Operators never swallow it: it passes through the whole sub-topology and ends the worker.
    """
