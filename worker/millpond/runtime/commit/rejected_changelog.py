"""The error for a changelog record that the client or the broker rejects.

No handler is called for such a record: if it were dropped, state and changelog would differ, and the next owner of
the task would restore the old value. So the worker stops and the commit fails; a restart continues from the last
commit.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError

from millpond.errors import BrokerError
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.processing.context import Outgoing

__all__ = ("RecordLimits", "changelog_rejected")

_SHOWN_KEY_BYTES = 60
#: Brokers count the headers of record and batch, too: about so many bytes for a batch of one.
_OVERHEAD_BYTES = 100
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


class RecordLimits:
    """The maximum size of a record.

    Args:
        client_bytes: the producer's limit for key and value together (`message.max.bytes`), in bytes.
        of_topic: returns a topic's limit (`max.message.bytes`), in bytes; None if it is unknown.
    """

    def __init__(self, client_bytes: int, of_topic: Callable[[str], int | None]) -> None:
        self.client_bytes = client_bytes
        self._of_topic = of_topic

    def of_topic(self, topic: str) -> int | None:
        """Return a topic's limit in bytes; None if it is unknown."""
        return self._of_topic(topic)


def changelog_rejected(
    store: str, row: Outgoing, error: KafkaError, limits: RecordLimits, *, by_client: bool
) -> BrokerError:
    """Return the error that stops the worker.

    Args:
        store: the store of the changelog.
        row: the record.
        error: why it was rejected.
        limits: the maximum size of a record.
        by_client: whether the client rejected the record, before it was sent to a broker.
    """
    topic, value, key = row[0], row[1] or b"", row[2] or b""
    size = len(key) + len(value)
    cause_and_cure = _cause_and_cure(topic, size, error, limits, by_client=by_client)
    return BrokerError(
        f"the change of key {_shown(key)} in store '{store}' was rejected: its record for changelog '{topic}' "
        f"({size} bytes of key and value) {cause_and_cure} and then restart the worker: this commit failed, so it "
        f"continues from the last one."
    )


def _cause_and_cure(topic: str, size: int, error: KafkaError, limits: RecordLimits, *, by_client: bool) -> str:
    """Return cause and cure: the part of the message before the restart."""
    code = error.code()
    if code in _TOO_LARGE and by_client:
        return (
            f"is larger than the producer's limit of {limits.client_bytes} bytes. Raise 'producer.message.max.bytes' "
            f"(in Java 'max.request.size') and the topic's 'max.message.bytes' to {size + _OVERHEAD_BYTES} or more, or "
            f"store less under one key,"
        )
    if code in _TOO_LARGE:
        limit = limits.of_topic(topic)
        known = f" of {limit} bytes" if limit is not None else ""
        return (
            f"is larger than the topic's limit{known}. Raise 'max.message.bytes' of the topic to "
            f"{size + _OVERHEAD_BYTES} or more, or store less under one key,"
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        return (
            f"has a timestamp outside the topic's limits ({error.str()}). Check the timestamps of the input, and "
            f"'message.timestamp.after.max.ms' of the topic,"
        )
    if kind_of(error) is Kind.MISSING:
        return (
            f"is for a topic or partition that does not exist ({error.str()}). Check that the topic exists with all "
            f"its partitions; if it was deleted, run 'millpond reset' to process the inputs from the beginning,"
        )
    return f"was not accepted ({error.str()}). Check the topic's configuration,"


def _shown(key: bytes) -> str:
    """Return the key as one line of ASCII, shortened if it is long."""
    cut = key[:_SHOWN_KEY_BYTES]
    return repr(cut) + ("…" if len(key) > len(cut) else "")
