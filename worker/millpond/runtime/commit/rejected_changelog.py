"""Why the client or the broker rejects a record, and the error for a changelog record.

No handler is called for a changelog record: if it were dropped, state and changelog would differ, and the next owner of
the task would restore the old value. So the worker stops and the commit fails; a restart continues from the last
commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError

from millpond.errors import BrokerError
from millpond.runtime.error_codes import Kind, kind_of
from millpond.runtime.processing.context import Outgoing
from millpond.times import iso

__all__ = ("RecordLimits", "changelog_rejected", "output_rejected")

_SHOWN_KEY_BYTES = 60
#: Brokers count the headers of record and batch, too: about so many bytes for a batch of one.
_OVERHEAD_BYTES = 100
_STACK_TRACE = "__streams.errors.stacktrace"
_HEADERS_SLOT = 7
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
    cause, cure = _cause_and_cure(row, size, error, limits, by_client=by_client)
    return BrokerError(
        f"the change of key {_shown(key)} in store '{store}' was rejected: its record for changelog '{topic}' "
        f"({size} bytes of key and value) {cause}. {cure}, and then restart the worker: this commit failed, so it "
        f"continues from the last one."
    )


def output_rejected(row: Outgoing, error: KafkaError, limits: RecordLimits, *, by_client: bool) -> BrokerError:
    """Return the error for a record of an output topic or a dead letter, with its cure. See `changelog_rejected`."""
    topic, value, key, *_ = row
    headers: Any = row[_HEADERS_SLOT] if len(row) > _HEADERS_SLOT else None
    own, beside = len(key or b"") + len(value or b""), _size_of(headers)
    is_letter = any(name == _STACK_TRACE for name, _ in headers or ())
    what = f"a {'dead letter' if is_letter else 'record'} for topic '{topic}'"
    size = f"{own} bytes of key and value"
    if beside:
        size += f", {beside} bytes of headers{', with the stack trace of its error' if is_letter else ''}"
    cause, cure = _cause_and_cure(row, own + beside, error, limits, by_client=by_client, store=False)
    return BrokerError(f"{what} ({size}) was rejected: it {cause}. {cure}.")


def _size_of(headers: Any) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers or ())


def _cause_and_cure(  # noqa: PLR0913 - keyword-only, what is known of the record
    row: Outgoing, size: int, error: KafkaError, limits: RecordLimits, *, by_client: bool, store: bool = True
) -> tuple[str, str]:
    """Return the predicate of a sentence about the record, and what to do: both without a full stop."""
    topic, code = row[0], error.code()
    less = "store less under one key" if store else "write less into one record"
    if code in _TOO_LARGE and by_client:
        return (
            f"is larger than the producer's limit of {limits.client_bytes} bytes",
            f"Raise 'producer.message.max.bytes' (in Java 'max.request.size') and the topic's 'max.message.bytes' to "
            f"{size + _OVERHEAD_BYTES} or more, or {less}",
        )
    if code in _TOO_LARGE:
        limit = limits.of_topic(topic)
        known = f" of {limit} bytes" if limit is not None else ""
        return (
            f"is larger than the topic's limit{known}",
            f"Raise 'max.message.bytes' of the topic to {size + _OVERHEAD_BYTES} or more, or {less}",
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        timestamp = row[6]
        return (
            f"has the timestamp {timestamp}, which is {iso(timestamp)}, and is outside the topic's limits "
            f"({error.str()})",
            "Check the timestamps of the input, and 'message.timestamp.before.max.ms' and "
            "'message.timestamp.after.max.ms' of the topic",
        )
    if kind_of(error) is Kind.MISSING:
        return (
            f"is for a topic or partition that does not exist ({error.str()})",
            "Check that the topic exists with all its partitions"
            + ("; if it was deleted, run 'millpond reset' to process the inputs from the beginning" if store else ""),
        )
    return f"was not accepted ({error.str()})", "Check the topic's configuration"


def _shown(key: bytes) -> str:
    """Return the key as one line of ASCII, shortened if it is long."""
    cut = key[:_SHOWN_KEY_BYTES]
    return repr(cut) + ("…" if len(key) > len(cut) else "")
