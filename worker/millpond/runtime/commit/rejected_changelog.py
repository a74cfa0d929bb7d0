"""What to say of a changelog record that the client or the broker rejects.

No handler is asked about one: dropped, it would leave the state unlike its changelog, and the next owner of the task
would restore the old value. So the worker ends, nothing of the commit is kept, and a restart goes on from the last one.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError

from millpond.errors import BrokerError
from millpond.runtime.processing.context import Outgoing

__all__ = ("UNKNOWN_TOPIC", "RecordLimits", "changelog_rejected")

_SHOWN_KEY_BYTES = 60
#: A broker counts what is around a record, too: about so many bytes, for a batch of one.
_AROUND_BYTES = 100
UNKNOWN_TOPIC = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


class RecordLimits:
    """How large a record may be.

    Args:
        client_bytes: the most that the producer takes, key and value together (`message.max.bytes`).
        of_topic: the most that a topic takes (`max.message.bytes`); None where the brokers do not say.
    """

    def __init__(self, client_bytes: int, of_topic: Callable[[str], int | None]) -> None:
        self.client_bytes = client_bytes
        self._of_topic = of_topic

    def of_topic(self, topic: str) -> int | None:
        """The most that a topic takes, in bytes; None where the brokers do not say."""
        return self._of_topic(topic)


def changelog_rejected(
    store: str, row: Outgoing, error: KafkaError, limits: RecordLimits, *, by_client: bool
) -> BrokerError:
    """Return the error that ends the worker.

    Args:
        store: whose changelog the record is for.
        row: the record.
        error: why it was rejected.
        limits: how large a record may be.
        by_client: the client rejected it, and no broker has seen it.
    """
    topic, value, key = row[0], row[1] or b"", row[2] or b""
    size = len(key) + len(value)
    return BrokerError(
        f"the change of key {_shown(key)} in store '{store}' was rejected: its record for changelog '{topic}' "
        f"({size} bytes of key and value) {_cause(topic, size, error, limits, by_client=by_client)} and then restart the worker: nothing "
        f"of this commit is kept, so it goes on from the last one."
    )


def _cause(topic: str, size: int, error: KafkaError, limits: RecordLimits, *, by_client: bool) -> str:
    """Cause and cure: the rest of the sentence up to the restart."""
    code = error.code()
    if code in _TOO_LARGE and by_client:
        return (
            f"is larger than the producer's limit of {limits.client_bytes} bytes. Raise 'producer.message.max.bytes' "
            f"(in Java 'max.request.size') and the topic's 'max.message.bytes' to {size + _AROUND_BYTES} or more, or keep less "
            f"under one key,"
        )
    if code in _TOO_LARGE:
        limit = limits.of_topic(topic)
        known = f" of {limit} bytes" if limit is not None else ""
        return (
            f"is larger than the topic's limit{known}. Raise 'max.message.bytes' of the topic to {size + _AROUND_BYTES} or "
            f"more, or keep less under one key,"
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        return (
            f"has a timestamp that the topic does not take ({error.str()}). Check the timestamps of the input, and "
            f"'message.timestamp.after.max.ms' of the topic,"
        )
    if code in UNKNOWN_TOPIC:
        return (
            f"has no topic to go to ({error.str()}). Check that the topic exists with all its partitions; if it was "
            f"deleted, run 'millpond reset' to process the inputs from the beginning,"
        )
    return f"is not accepted ({error.str()}). Check the topic's configuration,"


def _shown(key: bytes) -> str:
    """The key as one line of ASCII, cut where it is long."""
    cut = key[:_SHOWN_KEY_BYTES]
    return repr(cut) + ("…" if len(key) > len(cut) else "")
