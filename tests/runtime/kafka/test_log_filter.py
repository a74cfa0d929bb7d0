"""Which messages of Kafka's clients are shown: repeated ones once, and a harmless retry only if it lasts."""

from __future__ import annotations

import logging

import pytest

from millpond.runtime.kafka.log_filter import RepeatFilter

_RETRY = (
    "GETPID [rdkafka#producer-{}] [thrd:main]: Failed to acquire {} PID from broker TxnCoordinator/1: "
    "Broker: Coordinator load in progress: retrying"
)
_REFUSED = (
    "GETPID [rdkafka#producer-1] [thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: "
    "Broker: Transactional Id authorization failed"
)


class _Log:
    """A filter on a clock of its own, and the messages that passed it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._filter = RepeatFilter(now=lambda: self.now)
        self.shown: list[str] = []

    def say(self, text: str) -> None:
        record = logging.LogRecord("kafka", logging.WARNING, "", 0, text, None, None)
        if self._filter.filter(record):
            self.shown.append(record.getMessage())

    def retry_for(self, seconds: float, kind: str = "transactional") -> None:
        """Report a retry ten times a second, each fifth time by a new producer."""
        for number in range(int(seconds * 10)):
            self.say(_RETRY.format(number // 5, kind))
            self.now += 0.1


def test_a_short_retry_of_a_new_producer_is_not_shown() -> None:
    """Each start beside a new broker has some, also several times: the time between two starts does not count."""
    log = _Log()
    for _ in range(5):
        log.retry_for(2)
        log.now += 10
    assert log.shown == []


@pytest.mark.parametrize("kind", ["transactional", "idempotence"])
def test_a_retry_that_lasts_is_told_once_in_plain_words(kind: str) -> None:
    """With the broker's reason and the time, under either guarantee."""
    log = _Log()
    log.retry_for(20, kind)
    assert log.shown == [
        "producer: the broker has not given it an id for 5 s (Broker: Coordinator load in progress); retrying. It is "
        "loading its state, or is ending an open transaction of an earlier process"
    ]


def test_a_failure_without_a_retry_is_shown_at_once() -> None:
    """Such as a missing right."""
    log = _Log()
    log.say(_REFUSED)
    assert log.shown == [_REFUSED]


def test_messages_that_differ_in_numbers_only_are_shown_once_in_a_while() -> None:
    """Without brokers, there are ten a second."""
    log = _Log()
    for number in range(100):
        log.say(f"broker {number} is down")
        log.now += 0.5
    assert log.shown == ["broker 0 is down", "broker 60 is down"]


_FENCED = "Local: This instance has been fenced by a newer instance"
_FATAL = (
    f"TXNERR [rdkafka#producer-2] [thrd:main]: Fatal transaction error: Failed to add: {_FENCED} (_FENCED)",
    f"FATAL [rdkafka#producer-2] [thrd:main]: Fatal error: {_FENCED}: Failed to add partitions: {_FENCED}",
)
_COORDINATOR = "[rdkafka#producer-2] [thrd:main]: TxnCoordinator/1: Failed to add"


@pytest.mark.parametrize(
    "lines",
    [
        _FATAL,
        (*_FATAL, f"ADDOFFSETS {_COORDINATOR} offsets to transaction on broker TxnCoordinator/1: {_FENCED}"),
        (
            f'ADDPARTS {_COORDINATOR} partition "a" [1] to transaction: Broker: Producer attempted an operation with '
            "an old epoch",
            *_FATAL,
        ),
    ],
    ids=["commit", "offsets", "records"],
)
def test_a_fenced_producer_is_one_warning_in_plain_words(lines: tuple[str, ...]) -> None:
    """The worker goes on by itself: what the client calls an error, and then fatal, is no failure."""
    shown = RepeatFilter()
    records = [logging.LogRecord("kafka", logging.CRITICAL, "", 0, "%s", (text,), None) for text in lines]
    (told,) = [record for record in records if shown.filter(record)]
    assert (told.levelname, told.levelno) == ("WARNING", logging.WARNING)
    assert told.getMessage().startswith("producer: fenced, since another worker has taken tasks of this one over")


def test_another_fatal_error_of_a_producer_stays_critical() -> None:
    """Such as a missing right."""
    other = logging.LogRecord("kafka", logging.CRITICAL, "", 0, "FATAL [x]: Fatal error: not allowed", None, None)
    assert RepeatFilter().filter(other)
    assert other.levelno == logging.CRITICAL
