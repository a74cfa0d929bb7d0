"""The errors of millpond: one root, and one class for each cause that a caller can handle on its own."""

from __future__ import annotations

__all__ = (
    "BrokerError",
    "ConfigError",
    "MillpondError",
    "OffsetsLost",
    "OwnershipError",
    "ProcessingFailed",
    "SerializationError",
    "SnapshotError",
    "StateCorrupted",
    "StateDirectoryLocked",
    "StateError",
    "TopicAtRisk",
    "TopicChanged",
    "TopicError",
    "TopologyError",
    "WorkerStateError",
)


class MillpondError(Exception):
    """The root of all errors that millpond raises on purpose. A message has the cause and the cure."""


class ConfigError(MillpondError):
    """A setting is unknown, missing, or has a value that cannot be used."""


class TopologyError(MillpondError):
    """A topology cannot be built, or its parts contradict each other."""


class SerializationError(MillpondError):
    """Bytes cannot be decoded, or a value cannot be encoded."""


class StateError(MillpondError):
    """Local state cannot be read or written."""


class StateDirectoryLocked(StateError):
    """Another process holds the state directory."""


class StateCorrupted(StateError):
    """The local database is damaged; the store is rebuilt from its changelog.

    Attributes:
        store: the name of the store, or None for the whole database.
    """

    def __init__(self, message: str, store: str | None = None) -> None:
        super().__init__(message)
        self.store = store


class SnapshotError(MillpondError):
    """A snapshot or its location cannot be read, written or used."""


class BrokerError(MillpondError):
    """The Kafka cluster (or a schema registry) cannot be reached, or rejected a request."""


class TopicError(BrokerError):
    """A topic is missing or has the wrong shape."""


class TopicChanged(TopicError):
    """A topic has new partitions that the running application does not read."""


class TopicAtRisk(TopicError):
    """A topic has fewer replicas than it should have; it is a warning, and the application runs."""


class OffsetsLost(BrokerError):
    """Brokers have lost commits: the committed offsets are those of an earlier one."""


class OwnershipError(MillpondError):
    """Another worker owns a task, or took it over."""


class WorkerStateError(MillpondError):
    """The state of a worker does not allow a call, such as a second start."""


class ProcessingFailed(MillpondError):
    """A record could not be processed, and the processing exception handler answered FAIL (KIP-1033).

    No operator catches it: it ends the worker.
    """
